/* Sleep and wake-up: no wake-up is lost.
 *
 * Mirrors runtime/memory/doorbell.h (ring, ring_always), Leader::ring_doorbells and
 * runtime/core/engine/engine_driving.cc (run, sleep, drive, begin_polling, poll_for, end_polling, sleep_for, look,
 * tell_leader).  The processes: the engine's thread; a caller that drives while it waits; a caller of another rank that
 * announces work and does not wait; a caller of this rank that looks for work itself while the engine sleeps.  The runtime
 * accesses these words with sequential consistency, like this model.  Time-outs never happen in the model, so the proof does
 * not depend on them.
 *
 * Broken on purpose: NO_LOOK_BEFORE_SLEEP, FLAG_AFTER_LOOK, NO_LOOK_ON_LEAVING, RING_BEFORE_WORK,
 * NO_RING_AFTER_LOOK, NO_RING_WHEN_LOCKED (a former bug of the runtime: the
 * wake-up came 0.1 s late, by the engine's watch).
 */
#define WAKERS 2
byte work = 0;         /* one bit for each operation that is announced and not carried out */
byte outstanding = 0;  /* operations of this rank that have not ended */
byte polling = 0;
bit sleeping = 0, blocked = 0, locked = 0, mine_done = 0;

inline wake() { blocked = 0 }
inline ring_always() {
  if
  :: sleeping != 0 ->
    bit old;
    atomic { old = sleeping; sleeping = 0 };
    if :: old -> wake() :: else fi
  :: else
  fi
}
inline ring() { if :: polling == 0 -> ring_always() :: else fi }

/* Under the lock: looks at one word after the other, as Gather::poll does. */
inline step(moved) {
  moved = 0;
  if :: work & 1 -> atomic { work = work & ~1; outstanding--; moved = 1 } :: else fi;
  if :: work & 2 -> atomic { work = work & ~2; outstanding--; moved = 1 } :: else fi;
  if :: work & 4 -> atomic { work = work & ~4; outstanding--; mine_done = 1; moved = 1 } :: else fi
}

proctype Waker(byte bits) {
  atomic { outstanding++ };
#ifdef RING_BEFORE_WORK
  ring();
  atomic { work = work | bits }
#else
  atomic { work = work | bits };
  if
  :: skip -> ring()
  :: skip -> if /* tell_leader, ring_doorbells: no ring for a sleeping rank if its work has already been carried out */
     :: polling == 0 ->
       if
       :: sleeping != 0 -> if :: work & bits -> ring() :: else fi
       :: else
       fi
     :: else
     fi
  fi
#endif
}

/* A brief look may leave work undone: streamed tensors, and the wake-up of sleeping members. */
proctype Looker(byte bits) {
  bit moved;
  atomic { outstanding++ };
  atomic { work = work | bits };
  if
  :: polling == 0 ->
    if
    :: sleeping != 0 ->
      if
      :: atomic { locked == 0 -> locked = 1 } ->
        if :: step(moved) :: skip fi;
        moved = (work != 0);
        locked = 0;
#ifndef NO_RING_AFTER_LOOK
        if :: moved -> ring_always() :: else fi
#endif
      :: locked -> ring()
      fi
    :: else -> ring()
    fi
  :: else
  fi
}

proctype Engine() {
  bit moved;
again:
  if
  :: polling == 0 ->
    if
    :: atomic { locked == 0 -> locked = 1 } ->
      step(moved);
      locked = 0;
      if :: moved -> goto again :: else fi
    :: locked -> goto again /* yields, and tries again */
    fi
  :: else
  fi;
#ifdef FLAG_AFTER_LOOK
  moved = 0;
  if :: polling == 0 -> atomic { locked == 0 -> locked = 1 }; step(moved); locked = 0 :: else fi;
  sleeping = 1;
#else
  sleeping = 1;
  moved = 0;
#ifndef NO_LOOK_BEFORE_SLEEP
  if :: polling == 0 -> atomic { locked == 0 -> locked = 1 }; step(moved); locked = 0 :: else fi;
#endif
#endif
  if
  :: moved
  :: else ->
    atomic { if :: sleeping == 1 -> blocked = 1 :: else fi };
  end:
    blocked == 0 /* sleeps in the kernel (futex) */
  fi;
  sleeping = 0;
  goto again
}

proctype Caller() {
  bit moved;
  byte turns = 0;
  atomic { polling++ };
  atomic { outstanding++ };
  atomic { work = work | 4 };
  ring();
  do /* poll_for: until the operation ends, or the patience is over */
  :: mine_done -> break
  :: !mine_done && turns < 2 ->
    turns++;
    if
    :: atomic { locked == 0 -> locked = 1 } ->
      step(moved);
      locked = 0
    :: locked
    fi
  :: turns == 2 -> break
  od;
  atomic { polling-- };
#ifndef NO_LOOK_ON_LEAVING
  if
  :: outstanding == 0
  :: else ->
    if
    :: atomic { locked == 0 -> locked = 1 } ->
      step(moved);
      if :: work != 0 -> moved = 1 :: else fi;
      locked = 0;
      if :: moved -> ring_always() :: else fi
    :: locked ->
#ifndef NO_RING_WHEN_LOCKED
      ring_always() /* the driving thread may have looked before this work appeared */
#else
      skip
#endif
    fi
  fi;
#endif
  if
  :: mine_done
  :: else ->
    ring_always();
    mine_done
  fi
}

init {
  atomic { run Engine(); run Waker(1); run Looker(2); run Caller() };
  timeout; /* no process can move */
  assert(work == 0 && mine_done)
}
