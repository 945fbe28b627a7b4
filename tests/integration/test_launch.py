# SPDX-License-Identifier: Apache-2.0
"""A held command: what it sees is what it would see without us."""

from __future__ import annotations

import json
import os
import pwd
import resource
import select
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

from igsdk import CommandNotFound, NotExecutable, StartFailed, UsageError
from igsdk.runtime.identity import find_caller
from igsdk.runtime.launch import Command, Exit

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")

NOBODY = pwd.getpwnam("nobody")

#: prints what a process can see of how it was started
SELF_PORTRAIT = """
import json, os, signal, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
names = ("SigBlk", "SigIgn", "SigCgt", "Umask", "Seccomp", "NoNewPrivs",
         "Groups", "Uid", "Gid")
fds = {}
for fd in os.listdir("/proc/self/fd"):
    try:
        fds[fd] = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        pass
portrait = {name: status[name].split() for name in names if name in status}
portrait |= {
    "fds": fds, "cwd": os.getcwd(), "group": os.getpgid(0), "session": os.getsid(0),
    "environment": dict(os.environ), "nice": os.nice(0), "argv": sys.argv[1:],
    "limits": open("/proc/self/limits").read(), "oom": open("/proc/self/oom_score_adj").read(),
    "affinity": sorted(os.sched_getaffinity(0)), "root": os.readlink("/proc/self/root"),
    "dispositions": [str(signal.getsignal(n)) for n in signal.valid_signals()],
}
print(json.dumps(portrait))
"""


def portrait() -> list[str]:
    return [sys.executable, "-I", "-c", SELF_PORTRAIT, "an argument", "another"]


def start(argv: list[str], **options: object) -> Command:
    command = Command(argv, **options)  # type: ignore[arg-type]
    command.prepare()
    command.go()
    return command


def test_it_sees_what_it_would_see_without_us(tmp_path: Path) -> None:
    """Compared with the same program started by the same parent in the plain way."""
    script = f"""
        import os, subprocess, sys
        from igsdk.runtime.launch import Command
        os.umask(0o026)
        os.chdir({str(tmp_path)!r})
        private = os.open("/dev/null", os.O_RDONLY)
        given = os.dup2(private, 20, inheritable=True)
        how, argv = sys.argv[1], {portrait()!r}
        if how == "plain":
            sys.exit(subprocess.run(argv, close_fds=False).returncode)
        command = Command(argv)
        command.prepare()
        command.go()
        sys.exit(command.wait().status)
    """
    seen = {}
    for how in ("plain", "held"):
        parent = [sys.executable, "-c", textwrap.dedent(script), how]
        done = subprocess.run(parent, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        seen[how] = json.loads(done.stdout)
        for fd, target in seen[how]["fds"].items():
            kind = target.partition("[")[0]  # numbers of pipes and processes differ
            seen[how]["fds"][fd] = "proc" if kind.startswith("/proc/") else kind
        # posix_spawn, which the plain way uses, ignores the C library's own two signals
        ignored = int(seen[how]["SigIgn"][0], 16)
        seen[how]["SigIgn"] = ignored & ~(3 << 31)
    assert "20" in seen["held"]["fds"]
    assert seen["held"]["argv"] == ["an argument", "another"]
    assert seen["held"] == seen["plain"]


def test_ignored_and_blocked_signals_are_passed_on(tmp_path: Path) -> None:
    """As under nohup; Python's own SIG_IGN for SIGPIPE is not the command's."""
    script = """
        import signal, sys
        from igsdk.runtime.launch import Command
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        command = Command(["cat", "/proc/self/status"])
        command.prepare()
        command.go()
        sys.exit(command.wait().status)
    """
    parent = [sys.executable, "-c", textwrap.dedent(script)]
    output = subprocess.run(parent, capture_output=True, text=True, check=True).stdout
    lines = [line for line in output.splitlines() if line[:6] in ("SigBlk", "SigIgn", "SigCgt")]
    # 32 and 33 are the C library's own; what make starts has them ignored.
    ours = (1 << 31) - 1
    masks = {line.split(":")[0]: int(line.split(":")[1], 16) & ours for line in lines}
    assert masks["SigIgn"] == 1 << (signal.SIGHUP - 1)
    assert masks["SigBlk"] == 1 << (signal.SIGUSR2 - 1)
    assert masks["SigCgt"] == 0


def test_it_waits_until_it_may_go(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = Command(["touch", str(mark)])
    pid = command.prepare()
    assert command.wait(0.2) is None
    assert not mark.exists()
    assert Path(f"/proc/{pid}/comm").read_text() != "touch\n"
    command.go()
    assert command.wait(10) == Exit(0)
    assert mark.exists()
    command.close()


def test_its_mount_namespace_is_its_own_and_propagation_is_unchanged(tmp_path: Path) -> None:
    def mounts(pid: int | str) -> list[str]:
        """Mount point and propagation of each; peer groups lose no member."""
        lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
        return sorted(" ".join(line.split(" - ")[0].split()[3:]) for line in lines)

    def namespace(pid: int | str, kind: str) -> Path:
        return Path(f"/proc/{pid}/ns/{kind}").readlink()

    command = Command(["true"])
    pid = command.prepare()
    assert namespace(pid, "mnt") != namespace("self", "mnt")
    assert namespace(pid, "pid") == namespace("self", "pid")
    assert mounts(pid) == mounts("self")
    command.go()
    assert command.wait(10) == Exit(0)


def test_exit_codes_and_signals() -> None:
    assert start(["sh", "-c", "exit 3"]).wait(10) == Exit(3)
    by_signal = start(["sh", "-c", "kill -USR1 $$"]).wait(10)
    assert by_signal == Exit(None, signal.SIGUSR1)
    assert by_signal.status == 128 + signal.SIGUSR1


def failure(argv: list[str], **options: object) -> StartFailed:
    with pytest.raises(StartFailed) as caught:
        start(argv, **options)
    return caught.value


BESIDE_GRPC = """
import grpc, os, sys
from concurrent import futures
from igsdk.runtime.launch import Command

server = grpc.server(futures.ThreadPoolExecutor(1))
server.add_insecure_port(f"unix:{sys.argv[1]}")
server.start()
for _ in range(5):
    command = Command(["sh", "-c", "sleep 0.1; exit 7"])
    command.prepare()
    command.go()
    print(command.wait())
os._exit(0)
"""


def test_libraries_that_do_something_at_a_fork_do_nothing_to_it(tmp_path: Path) -> None:
    """gRPC starts threads in a forked child, which abort as their files are closed there."""
    argv = [sys.executable, "-c", BESIDE_GRPC, str(tmp_path / "socket")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [str(Exit(7))] * 5, done.stderr


def test_commands_that_do_not_exist(tmp_path: Path) -> None:
    for name in ("no-such-command", "/no/such/command", str(tmp_path / "absent"), "/etc/passwd/x"):
        error = failure([name])
        assert isinstance(error, CommandNotFound), name
        assert error.exit_code == 127
        assert name in error.cause


def test_commands_that_cannot_be_executed(tmp_path: Path) -> None:
    plain, binary, orphan = tmp_path / "plain", tmp_path / "binary", tmp_path / "orphan"
    plain.write_text("#!/bin/sh\n")
    binary.write_bytes(b"\x00\x01\x02\x03")
    orphan.write_text("#!/no/such/interpreter\n")
    binary.chmod(0o755)
    orphan.chmod(0o755)
    for path in (plain, binary, orphan, tmp_path):
        error = failure([str(path)])
        assert isinstance(error, NotExecutable), path
        assert error.exit_code == 126


def test_a_script_without_a_first_line_runs_in_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f'echo "$0 $1" > {tmp_path}/out; exit 4\n')
    script.chmod(0o755)
    assert start([str(script), "one"]).wait(10) == Exit(4)
    assert (tmp_path / "out").read_text() == f"{script} one\n"


def test_the_path_searched_is_the_commands_own(tmp_path: Path) -> None:
    for folder, code in (("first", 0o644), ("second", 0o755)):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "program"
        program.write_text("#!/bin/sh\nexit 9\n")
        program.chmod(code)
    path = f"{tmp_path}/absent:{tmp_path}/first:{tmp_path}/second"
    assert start(["program"], environment={"PATH": path}).wait(10) == Exit(9)
    denied = failure(["program"], environment={"PATH": f"{tmp_path}/first:{tmp_path}/absent"})
    assert isinstance(denied, NotExecutable)


def test_as_another_user(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"(grep -E '^(Uid|Gid|Groups):' /proc/self/status; env) > {out}"
    out.touch()
    out.chmod(0o666)
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    assert start(["sh", "-c", script], user="nobody").wait(10) == Exit(0)
    lines = out.read_text().splitlines()
    status = dict(line.split(":\t") for line in lines[:3])
    assert status["Uid"].split() == [str(NOBODY.pw_uid)] * 4
    assert status["Gid"].split() == [str(NOBODY.pw_gid)] * 4
    groups = os.getgrouplist("nobody", NOBODY.pw_gid)
    assert sorted(map(int, status["Groups"].split())) == sorted(groups)
    environment = dict(line.split("=", 1) for line in lines[3:] if "=" in line)
    names = ("HOME", "USER", "LOGNAME", "SHELL")
    expected = [NOBODY.pw_dir, "nobody", "nobody", NOBODY.pw_shell]
    assert [environment[name] for name in names] == expected


def test_a_user_may_be_a_number_and_must_exist() -> None:
    command = Command(["true"], user=str(NOBODY.pw_uid))
    assert command.owner is not None
    assert command.owner.name == "nobody"
    for user in ("no-such-user", "4294967294"):
        with pytest.raises(UsageError) as caught:
            Command(["true"], user=user)
        assert caught.value.exit_code == 2


def test_what_the_user_may_not_execute_is_not_executed(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    assert isinstance(failure([str(program)], user="nobody"), NotExecutable)


def fake_proc(folder: Path, chain: list[tuple[str, dict[str, str], str]]) -> Path:
    """A /proc in which our parent is the first of the chain, its parent the second, ..."""
    pids = [os.getppid(), *range(900001, 900000 + len(chain)), 1]
    for number, (name, environment, rest) in enumerate(chain):
        process = folder / str(pids[number])
        process.mkdir()
        text = f"Name:\t{name}\nPPid:\t{pids[number + 1]}\n{rest}"
        (process / "status").write_text(text)
        raw = "".join(f"{key}={value}\0" for key, value in environment.items())
        (process / "environ").write_text(raw)
    return folder


def sudo_environment() -> dict[str, str]:
    return {
        "PATH": "/sbin",
        "HOME": "/root",
        "USER": "root",
        "SUDO_UID": str(NOBODY.pw_uid),
        "SUDO_GID": str(NOBODY.pw_gid),
        "SUDO_USER": "nobody",
        "SUDO_COMMAND": "igsdk",
    }


def test_under_sudo_the_callers_environment_and_groups(tmp_path: Path) -> None:
    callers = {"PATH": "/opt/bin:/bin", "CUDA_VISIBLE_DEVICES": "1", "HOME": "/home/me", "A": "b=c"}
    shell = f"Uid:\t{NOBODY.pw_uid}\t0\t0\t0\nGid:\t77\t0\t0\t0\nGroups:\t5 6 77\n"
    chain = [("sudo", callers, ""), ("sudo", callers, ""), ("bash", {}, shell)]
    caller = find_caller(None, sudo_environment(), fake_proc(tmp_path, chain))
    assert caller.environment == callers
    assert caller.identity is not None
    assert (caller.identity.uid, caller.identity.gid) == (NOBODY.pw_uid, 77)
    assert caller.identity.groups == (5, 6, 77)


def test_under_sudo_through_a_wrapper(tmp_path: Path) -> None:
    chain = [("python3", {}, ""), ("sudo", {"ONE": "1"}, ""), ("bash", {}, "Uid:\t12\t12\n")]
    caller = find_caller(None, sudo_environment(), fake_proc(tmp_path, chain))
    assert caller.environment == {"ONE": "1"}
    assert caller.identity is not None
    # The shell above is somebody else's: the account's own groups, then.
    assert caller.identity.groups == tuple(os.getgrouplist("nobody", NOBODY.pw_gid))


def test_where_sudo_is_gone_the_accounts_own_entries(tmp_path: Path) -> None:
    caller = find_caller(None, sudo_environment(), fake_proc(tmp_path, [("bash", {}, "")]))
    assert caller.environment == {
        "PATH": "/sbin",
        "HOME": NOBODY.pw_dir,
        "USER": "nobody",
        "LOGNAME": "nobody",
        "SHELL": NOBODY.pw_shell,
    }


def test_without_sudo_and_user_nothing_changes(tmp_path: Path) -> None:
    caller = find_caller(None, {"SUDO_UID": "junk", "A": "b"}, tmp_path)
    assert caller.identity is None
    assert caller.environment == {"SUDO_UID": "junk", "A": "b"}


def test_a_real_process_named_sudo(tmp_path: Path) -> None:
    """The whole way: caller, a stand-in for sudo that cleans the environment, we, command."""
    stand_in = tmp_path / "sudo"
    inner = """
        import sys
        from igsdk.runtime.launch import Command
        command = Command(["sh", "-c", "echo $MARK; id -u; id -G"])
        command.prepare(); command.go(); sys.exit(command.wait().status)
    """
    variables = {**sudo_environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    stand_in.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\n"
        f"sys.exit(subprocess.run([sys.executable, '-c', {textwrap.dedent(inner)!r}],"
        f" env={variables!r}).returncode)\n"
    )
    stand_in.chmod(0o755)
    tmp_path.chmod(0o755)
    # exec through a script keeps the script's name as the process's name
    caller = (
        f"import os, subprocess; os.setgroups([5, 6]); os.setresgid({NOBODY.pw_gid}, 0, 0)\n"
        f"os.setresuid({NOBODY.pw_uid}, 0, 0)\n"
        f"import sys; sys.exit(subprocess.run([{str(stand_in)!r}], env={{'MARK': 'the caller', "
        f"'PATH': os.environ['PATH']}}).returncode)"
    )
    done = subprocess.run([sys.executable, "-c", caller], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    mark, uid, groups = done.stdout.splitlines()
    assert mark == "the caller"
    assert uid == str(NOBODY.pw_uid)
    assert set(groups.split()) == {"5", "6", str(NOBODY.pw_gid)}


def wait_for(condition: object, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_it_goes_on_when_we_are_killed(tmp_path: Path) -> None:
    """kill -9 while it waits: a closed pipe means exec too."""
    mark, ready = tmp_path / "mark", tmp_path / "ready"
    script = f"""
        import time
        from pathlib import Path
        from igsdk._native import OpenHold
        from igsdk.runtime.launch import Command
        command = Command(["touch", {str(mark)!r}])
        pid = command.prepare()
        hold = OpenHold(pid)
        Path({str(ready)!r}).write_text(str(pid))
        time.sleep(60)
    """
    holder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    wait_for(lambda: ready.exists() and ready.read_text())
    assert not mark.exists()
    holder.kill()
    holder.wait()
    wait_for(mark.exists)


def test_ctrl_c_while_it_waits_ends_it() -> None:
    command = Command(["sleep", "60"])
    pid = command.prepare()
    os.kill(pid, signal.SIGINT)
    assert command.wait(0.2) is None
    command.go()
    assert command.wait(10) == Exit(None, signal.SIGINT)


def test_ctrl_c_reaches_it_and_us(tmp_path: Path) -> None:
    """One process group: the terminal's signal goes to both."""
    script = """
        import os, signal, sys
        from igsdk.runtime.launch import Command
        signal.signal(signal.SIGINT, lambda *_: os.write(1, b"we\\n"))
        wait = "trap 'echo it; exit 5' INT; echo up; while :; do sleep 0.1; done"
        command = Command(["sh", "-c", wait])
        command.prepare()
        command.go()
        sys.exit(command.wait().status)
    """
    us = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert us.stdout is not None
    assert us.stdout.readline() == "up\n"
    os.killpg(us.pid, signal.SIGINT)
    output, _ = us.communicate(timeout=10)
    assert us.returncode == 5
    assert sorted(output.split()) == ["it", "we"]


def test_kill_before_and_after_the_start() -> None:
    waiting = Command(["sleep", "60"])
    waiting.prepare()
    waiting.kill()
    assert waiting.poll() == Exit(None, signal.SIGKILL)
    running = start(["sleep", "60"])
    running.kill()
    assert running.wait() == Exit(None, signal.SIGKILL)
    running.send_signal(signal.SIGTERM)  # gone: nothing happens


def test_closing_before_the_start_kills_it(tmp_path: Path) -> None:
    """Our failure before the start must not start it; only our death does."""
    mark = tmp_path / "mark"
    command = Command(["touch", str(mark)])
    command.prepare()
    command.close()
    assert command.poll() == Exit(None, signal.SIGKILL)
    assert not mark.exists()


def test_its_descriptor_tells_the_end() -> None:
    command = start(["sleep", "0.2"])
    assert select.select([command], [], [], 0)[0] == []
    assert select.select([command], [], [], 10)[0] == [command]
    assert command.poll() == Exit(0)


def test_descriptors_above_1023() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip(f"the limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    many = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        command = start(["sh", "-c", "ls /proc/self/fd | wc -l > /dev/null; exit 6"])
        assert command.fileno() > 1023
        assert command.wait(10) == Exit(6)
        command.close()
    finally:
        for fd in many:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nothing_of_ours_is_left_open() -> None:
    before = set(Path("/proc/self/fd").iterdir())
    for argv in (["true"], ["/no/such/command"]):
        command = Command(argv)
        pid = command.prepare()
        with suppress(CommandNotFound):
            command.go()
        command.wait()
        command.close()
        assert not Path(f"/proc/{pid}").exists()
    assert set(Path("/proc/self/fd").iterdir()) == before
