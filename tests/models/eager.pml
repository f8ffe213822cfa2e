/* Slots for small tensors, two by parity of the round. A rank that reads round k finds the data of round k, although no rank
 * confirms its reads.
 *
 * Mirrors runtime/ops/shm/eager.h, Announcer::begin (the copy before the bit), Gather::poll and ProcessSet::carry_out: the order of
 * round k is published when all have announced k, and each rank reads all slots before it announces k + 1.
 *
 * Broken on purpose: ONE_SLOT, BIT_BEFORE_DATA.
 */
#ifndef RANKS
#define RANKS 2
#endif
#define ROUNDS 4
#define WRITING 200
#ifdef ONE_SLOT
#define SLOT(r, k) (2 * (r))
#else
#define SLOT(r, k) (2 * (r) + ((k) & 1))
#endif
byte slot[2 * RANKS]; /* round + 1 */
bit board[RANKS];
bit latch = 0;
byte published = 0;

proctype Leader() {
  byte r;
  bit all;
  do
  :: published == ROUNDS -> break
  :: published < ROUNDS ->
    all = 1;
    for (r : 0 .. RANKS - 1) { if :: board[r] == latch -> all = 0 :: else fi };
    if :: all -> latch = !latch; published++ :: else fi
  od
}

proctype Rank(byte me) {
  byte k, r;
  for (k : 0 .. ROUNDS - 1) {
#ifdef BIT_BEFORE_DATA
    board[me] = !board[me];
#endif
    slot[SLOT(me, k)] = WRITING;
    slot[SLOT(me, k)] = k + 1;
#ifndef BIT_BEFORE_DATA
    board[me] = !board[me];
#endif
    published > k;
    for (r : 0 .. RANKS - 1) {
      assert(slot[SLOT(r, k)] == k + 1); /* begins to read */
      assert(slot[SLOT(r, k)] == k + 1)  /* has read */
    }
  }
}

init {
  byte i;
  atomic {
    run Leader();
    for (i : 0 .. RANKS - 1) { run Rank(i) }
  }
}
