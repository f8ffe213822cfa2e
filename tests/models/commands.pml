/* Ready bits as parities, the leader's latch, and the ring of commands: every round of every tensor is published once, when
 * all ranks have announced it, and every rank reads every command once, in the same sequence.
 *
 * Mirrors Announcer::flip, negotiate/gather.h (poll: bits against the latch), memory/queue.h (CommandWriter::write:
 * room for the command and for the header behind it, which is zeroed before; CommandReader::read) and ProcessSet::executed.
 * Places of the ring stand for its bytes: a command takes one.
 *
 * Broken on purpose: NO_LATCH, NO_ROOM_FOR_HEADER, NO_HOLD, EAGER_SUBMIT.
 */
#ifndef RANKS
#define RANKS 2
#endif
#define TENSORS 2
#define ROUNDS 3
#define PLACES 2
#define COMMANDS (TENSORS * ROUNDS)
#define ID(r, t) ((r) * TENSORS + (t))

bit board[RANKS * TENSORS]; /* [rank][tensor] parity */
byte announced[RANKS * TENSORS];
bit latch[TENSORS];
byte header[PLACES];  /* 0: nothing; else tensor + 1 */
byte written = 0;     /* commands, by the leader */
byte read[RANKS];
byte log[COMMANDS];     /* content of command n */
byte round_of[TENSORS];

inline publish(t) {
  byte q, slowest;
  do /* the hold: waits until the slowest rank has read enough */
  :: slowest = written;
     for (q : 0 .. RANKS - 1) { if :: read[q] < slowest -> slowest = read[q] :: else fi };
#ifdef NO_HOLD
     break
#else
#ifdef NO_ROOM_FOR_HEADER
     if :: written + 1 - slowest <= PLACES -> break :: else fi
#else
     if :: written + 2 - slowest <= PLACES -> break :: else fi
#endif
#endif
  od;
  log[written] = t;
  header[(written + 1) % PLACES] = 0;
  header[written % PLACES] = t + 1;
  written++
}

proctype Leader() {
  byte t, r;
  bit all;
  do
  :: written == COMMANDS -> break
  :: written < COMMANDS ->
    for (t : 0 .. TENSORS - 1) {
      all = 1;
      for (r : 0 .. RANKS - 1) { if :: board[ID(r, t)] == latch[t] -> all = 0 :: else fi };
      if
      :: all ->
#ifndef NO_LATCH
        latch[t] = !latch[t];
#endif
        round_of[t]++;
        for (r : 0 .. RANKS - 1) { assert(announced[ID(r, t)] == round_of[t]) };
        publish(t)
      :: else
      fi
    }
  od
}

proctype Rank(byte me) {
  byte t, got;
  bit under_way[TENSORS];
  byte left[TENSORS];
  for (t : 0 .. TENSORS - 1) { left[t] = ROUNDS };
  do
  :: read[me] == COMMANDS -> break
  :: left[0] > 0 && !under_way[0] -> t = 0; goto submit
  :: left[1] > 0 && !under_way[1] -> t = 1; goto submit
#ifdef EAGER_SUBMIT
  :: left[0] > 0 -> t = 0; goto submit
#endif
  :: header[read[me] % PLACES] != 0 && read[me] < COMMANDS ->
    got = header[read[me] % PLACES] - 1;
    assert(got == log[read[me]]);
    assert(under_way[got]);
    under_way[got] = 0;
    read[me]++
  od;
  goto done;
submit:
  left[t]--;
  under_way[t] = 1;
  atomic { announced[ID(me, t)]++; board[ID(me, t)] = !board[ID(me, t)] };
  goto again;
again:
  do
  :: read[me] == COMMANDS -> goto done
  :: left[0] > 0 && !under_way[0] -> t = 0; goto submit
  :: left[1] > 0 && !under_way[1] -> t = 1; goto submit
#ifdef EAGER_SUBMIT
  :: left[0] > 0 -> t = 0; goto submit
#endif
  :: read[me] < COMMANDS && header[read[me] % PLACES] != 0 ->
    got = header[read[me] % PLACES] - 1;
    assert(got == log[read[me]]);
    assert(under_way[got]);
    under_way[got] = 0;
    read[me]++
  od;
done:
  skip
}

init {
  byte i;
  atomic {
    run Leader();
    for (i : 0 .. RANKS - 1) { run Rank(i) }
  }
}
