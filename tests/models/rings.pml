/* The chunk rings of a node, with two buffers each: no rank reads a buffer that is not yet written, or is being
 * overwritten.  No rank waits for ever.
 *
 * Mirrors runtime/ops/shm/rings.h (may_write_ring, may_write_result, all) and ShmAllreduce::step and step_reduce.  A
 * buffer holds the number of the chunk whose data it has, WRITING while it changes; each rank has its slice of the result.
 *
 * Broken on purpose: RING_EARLY, RESULT_EARLY, READ_EARLY, OUT_EARLY.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CHUNKS
#define CHUNKS 4
#endif
#define WRITING 200
#define BUFFER(r, c) (2 * (r) + ((c) & 1))
#ifdef RING_EARLY
#define RING_SLACK 1
#else
#define RING_SLACK 0
#endif
#ifdef RESULT_EARLY
#define RESULT_SLACK 1
#else
#define RESULT_SLACK 0
#endif

byte ring[2 * RANKS], result[2 * RANKS]; /* chunk + 1 */
byte in[RANKS], used[RANKS], reduced[RANKS], out[RANKS];
byte least_in, least_used, least_reduced, least_out;

#define ALL2(x, n) (x[0] >= (n) && x[1] >= (n))
#if RANKS == 2
#define ALL(x, n) ALL2(x, n)
#else
#define ALL(x, n) (ALL2(x, n) && x[2] >= (n))
#endif

inline inputs_there() {
  d_step { for (r : 0 .. RANKS - 1) { assert(r == me || ring[BUFFER(r, c)] == c + 1) }; r = 0 }
}
inline results_there() {
  d_step { for (r : 0 .. RANKS - 1) { assert(r == me || result[BUFFER(r, c)] == c + 1) }; r = 0 }
}

proctype Rank(byte me) {
  byte c, r;
  do
  :: out[me] == CHUNKS -> break
  :: in[me] < CHUNKS && (in[me] < 2 || ALL(used, in[me] - 1 - RING_SLACK)) -> /* copy_in */
    c = in[me];
    ring[BUFFER(me, c)] = WRITING;
    ring[BUFFER(me, c)] = c + 1;
    in[me]++
#ifdef READ_EARLY
  :: used[me] < in[me] && (used[me] < 2 || ALL(out, used[me] - 1 - RESULT_SLACK)) ->
#else
  :: used[me] < in[me] && (used[me] < 2 || ALL(out, used[me] - 1 - RESULT_SLACK)) && ALL(in, used[me] + 1) -> /* reduce */
#endif
    c = used[me];
    result[BUFFER(me, c)] = WRITING;
    inputs_there(); /* begins to read */
    inputs_there(); /* has read */
    result[BUFFER(me, c)] = c + 1;
    used[me]++
  :: reduced[me] < used[me] -> reduced[me]++ /* publish */
#ifdef OUT_EARLY
  :: out[me] < reduced[me] ->
#else
  :: out[me] < reduced[me] && ALL(reduced, out[me] + 1) -> /* copy_out */
#endif
    c = out[me];
    results_there();
    results_there();
    out[me]++
  od
}

init {
  byte i;
  atomic { for (i : 0 .. RANKS - 1) { run Rank(i) } }
}
