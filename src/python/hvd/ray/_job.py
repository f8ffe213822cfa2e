"""At the driver: hvdrun in a thread, with Ray actors as its hosts."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

import ray

from hvd._job.agents import Agents, agent_words, manifest, private_folder
from hvd._job.host_daemon import travelling_environment
from hvd._job.results import results, results_file, true_code
from hvd.exceptions import JobError

_LOOK_SECONDS = 0.2
_END_SECONDS = 20.0
_LOST_SECONDS = 60.0  # until hvdrun has noticed that an actor or its node is gone


class Stopped(Exception):
    """Raised in hvdrun's thread to end it as Ctrl-C would."""


@dataclass
class Host:
    """A node, as a host of hvdrun.  run(script) starts its daemon there; the reference's value is the failure, if any."""

    slots: int
    run: Callable[[str], Any]
    gpus: Sequence[str] = ()


class HostedJob(Agents):
    """A running hvdrun.  failure: the exception for its end; None after success."""

    def __init__(self, hosts: dict[str, Host], environment: dict[str, str], holds: dict[Any, str] | None = None) -> None:
        """environment: that of the ranks.  The driver's own variables for jobs replace equal names.

        holds: a call that lasts as long as its actor → the rank whose slot the actor holds, for messages.  The death of such
        an actor ends the job.
        """
        self.hosts, self.environment, self.holds = hosts, environment, holds or {}
        self.failure: Exception | None = None
        self.values: Any = None
        self.stopping = False
        folder = private_folder()
        try:
            super().__init__(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def drop(self) -> None:
        """Takes no further agent, and removes the folder."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def tell_hosts(self) -> None:
        """Writes the manifest."""
        slots = {name: host.slots for name, host in self.hosts.items()}
        gpus = {name: list(host.gpus) for name, host in self.hosts.items()}
        job, address = ray.get_runtime_context().get_job_id(), ray.util.get_node_ip_address()
        self.write_manifest(manifest("ray", str(job), slots, gpus, agent_words(self.folder), address))

    def look(self) -> None:
        """Raises Stopped after end(), and after the death of an actor of `holds`."""
        for hold in ray.wait(list(self.holds), num_returns=len(self.holds), timeout=0)[0] if self.holds else []:
            rank = self.holds.pop(hold)
            try:
                ray.get(hold)
            except ray.exceptions.RayError as error:
                why = str(error).strip().splitlines()[0]
                self.failure = JobError(f"{rank} has lost the Ray actor that held its slot, and the job ends: {why}")
                self.stopping = True
        if self.stopping:
            raise Stopped

    def run_job(self, payload: bytes, name: str, words: list[str], read: Callable[[Any, int, str], Any]) -> None:
        """Runs hvdrun to its end.  read(file, code, errors): returns the results, or raises."""
        environment = {**self.environment, **travelling_environment()}
        try:
            with results_file() as brought:
                code, errors = self.run_hvdrun(payload, name, words, environment, brought)
                self.values = read(brought, true_code(brought, code), errors)
        except Stopped:
            self.failure = self.failure or RuntimeError("the job was ended")
        except Exception as error:  # for the thread that waits
            self.failure = error
        finally:
            self.drop()

    def run_host(self, name: str, script: str, is_wanted: Callable[[], bool]) -> bool:
        """Runs the daemon in the host's actor.  If the actor dies, the host counts as lost."""
        try:
            reference = self.hosts[name].run(script)
            while not ray.wait([reference], timeout=_LOOK_SECONDS)[0]:
                if self.closed or not is_wanted():
                    ray.cancel(reference)
                    return False
            why = str(ray.get(reference))
        except Exception as error:  # a dead actor or node; or the daemon did not start
            why = str(error).strip().splitlines()[-1]
        if why and not self.closed:
            say(f"{name} has ended: {why}")
        return not why


class RunningJob:
    """hvdrun in a thread of its own."""

    def __init__(self, job: HostedJob, payload: bytes, name: str, words: list[str]) -> None:
        self.job = job

        def work() -> None:
            job.run_job(payload, name, words, lambda file, code, errors: results(file, [], code, errors))

        self.thread = threading.Thread(target=work, name="hvd.ray", daemon=True)
        try:
            job.tell_hosts()
            self.thread.start()
        except BaseException:
            job.drop()
            raise

    def wait_for(self, references: list[Any], seconds: float) -> None:
        """Waits for the actors' answers.  Errors: the job's failure; TimeoutError after `seconds`."""
        limit = time.monotonic() + seconds
        while references:
            done, references = ray.wait(references, num_returns=len(references), timeout=_LOOK_SECONDS)
            ray.get(done)
            if references and not self.thread.is_alive():
                raise self.job.failure or RuntimeError("hvdrun ended before its ranks began")
            if time.monotonic() > limit:
                raise TimeoutError(f"{len(references)} ranks did not start within {seconds:g} s")

    def failure_after(self, error: Exception) -> Exception:
        """The job's failure, once the job has ended; the call's own exception while it runs."""
        lost = isinstance(error, ray.exceptions.RayActorError)
        self.thread.join(_LOST_SECONDS if lost else _END_SECONDS if isinstance(error, ray.exceptions.RayError) else 0.0)
        return error if self.thread.is_alive() or self.job.failure is None else self.job.failure

    def end(self, seconds: float = _END_SECONDS) -> None:
        """Waits for hvdrun's end; after `seconds`, ends hvdrun."""
        self.thread.join(seconds)
        self.job.stopping = True
        self.thread.join()


def say(text: str) -> None:
    """Prints a line at the driver."""
    if sys.stderr is not None:
        print(f"hvd.ray: {text}", file=sys.stderr, flush=True)
