"""What every suite shares.  The fixtures two_hosts and three_hosts (tests/netns) are there for all."""

import os
import signal

# A shell starts what it leaves in the background with SIGINT ignored, nohup all with SIGHUP; so would be whatever a test
# starts and sends them to.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.environ.setdefault("HVD_SHARE_GPUS", "1")  # tests start as many ranks as they like, also where there is one GPU

pytest_plugins = ["netns.fixtures"]
