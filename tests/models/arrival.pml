/* Messages of other nodes: none waits while all threads of a rank sleep.
 *
 * Mirrors runtime/core/engine/engine_driving.cc (arm, arm_later, arrived, begin_polling, end_polling, sleep) and
 * runtime/transport/tcp/arrival_watch.cc.  The engine's thread sleeps.  A caller polls twice.  Afterwards its rank has an
 * operation under way, or none.  The watching thread sleeps until a message arrives while it is armed, or until its timer ends.
 * Messages come at any time.  The runtime accesses these words with sequential consistency, like this model.
 * The engine's sleep has no time-out in the model.
 *
 * Broken on purpose: NO_TIMER, CLEAR_AFTER_POLLING (a caller that ends polling in between sets no timer),
 * NO_ARM_AFTER_CALL, NO_ARM_BEFORE_SLEEP, NO_RING_WHEN_LOCKED.
 */
byte polling = 0;
bit message = 0; /* a message has arrived, and no thread has handled it */
bit sleeping = 0, blocked = 0, locked = 0;
bit armed = 0, timer = 0, arms_later = 0;

inline step() { message = 0 }
inline arm(on) { if :: sleeping != 0 -> armed = on :: else fi }
inline ring_always() {
  if
  :: sleeping != 0 ->
    atomic { if :: sleeping != 0 -> sleeping = 0; blocked = 0 :: else fi }
  :: else
  fi
}

proctype Network() {
  message = 1;
  message = 1
}

proctype Watch() {
again:
end:
  if
  :: atomic { armed && message -> armed = 0 }
  :: atomic { timer -> timer = 0 }
  fi;
#ifdef CLEAR_AFTER_POLLING
  if :: polling != 0 -> arms_later = 0; goto again :: else fi;
  arms_later = 0;
#else
  arms_later = 0;
  if :: polling != 0 -> goto again :: else fi;
#endif
  if
  :: atomic { locked == 0 -> locked = 1 } ->
    step();
    locked = 0;
#ifndef NO_ARM_AFTER_CALL
    arm(1)
#endif
  :: locked ->
#ifndef NO_RING_WHEN_LOCKED
    if :: polling == 0 -> ring_always() :: else fi
#else
    skip
#endif
  fi;
  goto again
}

proctype Engine() {
again:
  if
  :: polling == 0 ->
    atomic { locked == 0 -> locked = 1 };
    step();
    locked = 0
  :: else
  fi;
  sleeping = 1;
  if
  :: polling == 0 ->
    atomic { locked == 0 -> locked = 1 };
    step();
    locked = 0
  :: else
  fi;
#ifndef NO_ARM_BEFORE_SLEEP
  if :: polling == 0 -> arm(1) :: else fi;
#endif
  atomic { if :: sleeping == 1 -> blocked = 1 :: else fi };
end:
  blocked == 0; /* sleeps in the kernel (futex) */
  armed = 0;
  sleeping = 0;
  goto again
}

proctype Caller() {
  byte turns = 0;
  bit old;
  do
  :: turns == 2 -> break
  :: else ->
    turns++;
    polling++;
    arm(0);
    if /* a look at the network, or none: the operation may need no message */
    :: atomic { locked == 0 -> locked = 1 } -> if :: step() :: skip fi; locked = 0
    :: locked
    fi;
    polling--;
    if
    :: skip -> /* no operation is under way: arm_later() */
#ifndef NO_TIMER
      if
      :: sleeping != 0 ->
        atomic { old = arms_later; arms_later = 1 };
        if :: old == 0 -> timer = 1 :: else fi
      :: else
      fi
#endif
    :: skip -> /* an operation is under way */
      arm(1);
      if
      :: atomic { locked == 0 -> locked = 1 } -> step(); locked = 0
      :: locked -> ring_always()
      fi
    fi
  od
}

init {
  atomic { run Engine(); run Watch(); run Network(); run Caller() };
  timeout; /* no process can move */
  assert(message == 0)
}
