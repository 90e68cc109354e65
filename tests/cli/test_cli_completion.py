"""The Tab key, in a real bash."""

import shutil
import subprocess

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
