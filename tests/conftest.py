"""What every suite shares.  The fixtures two_hosts and three_hosts (tests/netns) are there for all."""

pytest_plugins = ["netns.fixtures"]
