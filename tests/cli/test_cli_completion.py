"""The Tab key, in a real bash."""

import os
import pty
import select
import shutil
import subprocess
import time

import pytest


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_verbs_and_options_are_completed(conduit, tmp_path):
    script = tmp_path / "conduit.bash"
    said = conduit("--install-completion", "bash", "--to", script)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(f"Written: {script}.")

    def offered(*words):
        typed = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        line = f"source {script}; {typed}; _conduit; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=20)
        return done.stdout.split()

    assert set(offered("conduit", "s")) == {"servers", "status"}
    assert offered("conduit", "servers", "rem") == ["remove"]
    assert "--json" in offered("conduit", "status", "--")


def test_the_shells_own_files_are_used_by_default(conduit, tmp_path):
    said = conduit("--install-completion", "bash").stdout
    assert "in bash's start-up file a line" in said
    assert "conduit" in (tmp_path / ".bashrc").read_text()
    assert conduit("--install-completion", "fish").returncode == 0
    assert "complete -c conduit" in (tmp_path / ".config/fish/completions/conduit.fish").read_text()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_person_presses_tab(conduit, tmp_path):
    conduit("--install-completion", "bash", "--to", tmp_path / "script")
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "dumb", "HOME": str(tmp_path), "PS1": "> "}
    bash = subprocess.Popen(
        ["bash", "--norc", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True
    )

    def typed(keys, shown):
        os.write(ours, keys)
        seen, deadline = b"", time.monotonic() + 15
        while shown not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([ours], [], [], 0.1)[0]:
                seen += os.read(ours, 65536)

    try:
        typed(f"source {tmp_path}/script; echo $((40 + 2))\n".encode(), b"42")
        typed(b"conduit stat\t", b"conduit status ")
        typed(b"\x15conduit serv\tresta\tx", b"conduit servers restart x")
        typed(b"\x15conduit tools \t\t", b"anthropic  gemini     openai")
        typed(b"\x15conduit call --ti\t", b"conduit call --timeout ")
    finally:
        bash.kill()
        bash.wait()
        os.close(ours)
        os.close(theirs)
