"""Jobs whose start lies in the future because the host's clock was set back."""

from __future__ import annotations

import json
import pathlib
import time

from support import hvdrun


def test_ps_shows_no_negative_time(tmp_path: pathlib.Path) -> None:
    env = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": ""}
    with hvdrun.started("-np", "1", "--", "sh", "-c", "echo up; exec sleep 60", env=env) as job:
        assert hvdrun.next_line(job.stdout).endswith("up\n")
        (file,) = tmp_path.glob("hvdrun-*/status.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "started": time.time() + 5000}))
        lines = hvdrun.run("ps", env=env).stdout.splitlines()
        assert [line.split()[3] for line in lines if line.split()[1] == str(job.pid)] == ["0:00:00"]
