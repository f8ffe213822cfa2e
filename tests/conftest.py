"""What every suite shares.  The fixtures two_hosts and three_hosts (tests/netns) are there for all."""

import os

os.environ.setdefault("HVD_SHARE_GPUS", "1")  # tests start as many ranks as they like, also where there is one GPU

pytest_plugins = ["netns.fixtures"]
