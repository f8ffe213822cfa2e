/* A plain MPI program. Checks that the world works, then does what its argument names: abort, spawn, … */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  int level = 0, rank = -1, size = 0, sum = 0, local_size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int one = 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const size_t many = 1 << 20;
  float* in = malloc(many * sizeof *in);
  float* out = malloc(many * sizeof *out);
  for (size_t i = 0; i < many; ++i) in[i] = (float)rank;
  MPI_Allreduce(in, out, (int)many, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &local_size);
  printf("rank %d of %d sum %d big %.0f node %d thread %d\n", rank, size, sum, out[many - 1], local_size, level);
  fflush(stdout);
  int *program = NULL, has_program = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &program, &has_program);
  if (strcmp(what, "program") == 0) printf("rank %d is of program %d\n", rank, has_program ? *program : -1);
  if (strcmp(what, "abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
  if (strcmp(what, "spawn") == 0) {
    MPI_Comm children;
    int code = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, &code);
  }
  if (strcmp(what, "wait") == 0 || strcmp(what, "abort") == 0) sleep(60);
  MPI_Finalize();
  return strcmp(what, "fail") == 0 && rank == 1 ? 9 : 0;
}
