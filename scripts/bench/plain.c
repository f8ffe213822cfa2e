/* What scripts/compare measures everything against, without Python: plain flag | plain allreduce (under mpirun).
 *
 * flag       round trip of a flag between two processes, in shared memory: tells how far apart the two cores are just
 * now. allreduce  blocking MPI_Allreduce of 4 B and 64 MiB of float32, best of three series each. Prints one line,
 * "FIGURES {json}". */
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { round_trips = 200000, small_elements = 1, large_elements = (64 << 20) / 4 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int measure_flag(void) {
  const size_t line = 128; /* the two flags on lines of their own */
  char* memory = mmap(NULL, 2 * line, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  atomic_int* ping = (atomic_int*)memory;
  atomic_int* pong = (atomic_int*)(memory + line);
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    for (int i = 1; i <= round_trips; ++i) {
      while (atomic_load_explicit(ping, memory_order_acquire) != i) {}
      atomic_store_explicit(pong, i, memory_order_release);
    }
    _exit(0);
  }
  const double start = now();
  for (int i = 1; i <= round_trips; ++i) {
    atomic_store_explicit(ping, i, memory_order_release);
    while (atomic_load_explicit(pong, memory_order_acquire) != i) {}
  }
  printf("FIGURES {\"flag_ns\": %.1f}\n", (now() - start) / round_trips * 1e9);
  return waitpid(child, NULL, 0) == child ? 0 : 1;
}

static double seconds_a_call(const float* in, float* out, int elements, int calls) {
  double best = 1e9;
  for (int series = 0; series < 3; ++series) {
    for (int i = 0; i < calls / 10 + 3; ++i) MPI_Allreduce(in, out, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double start = now();
    for (int i = 0; i < calls; ++i) MPI_Allreduce(in, out, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double each = (now() - start) / calls;
    if (each < best) best = each;
  }
  return best;
}

static int measure_allreduce(void) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float* in = calloc(large_elements, sizeof(float));
  float* out = calloc(large_elements, sizeof(float));
  if (in == NULL || out == NULL) return 1;
  memset(in, 0, large_elements * sizeof(float));
  const double small = seconds_a_call(in, out, small_elements, 5000);
  const double large = seconds_a_call(in, out, large_elements, 5);
  if (rank == 0) printf("FIGURES {\"small_us\": %.3f, \"large_ms\": %.3f}\n", small * 1e6, large * 1e3);
  free(in);
  free(out);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "flag") == 0) return measure_flag();
  MPI_Init(&argc, &argv);
  const int status = measure_allreduce();
  MPI_Finalize();
  return status;
}
