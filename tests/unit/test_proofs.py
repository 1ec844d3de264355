"""Which files a proof depends on: its test, its harness, and the modules that both import."""

from pathlib import Path

from tests.harness import proofs

_ROOT = Path(__file__).parents[2]


def read_by(test: str) -> set[str]:
    files = proofs.read_by(_ROOT / "tests" / test)
    return {str(file.relative_to(_ROOT)) for file in files}


def test_a_proof_depends_on_its_test_its_harness_and_what_they_import() -> None:
    assert read_by("unit/topology/test_simulator.py") >= {
        "tests/unit/topology/test_simulator.py",
        "tests/unit/topology/broken.py",
        "tests/harness/topology/world.py",
        "shared/packhorse/topology/lease/member.py",
    }


def test_a_proof_depends_on_a_module_that_it_breaks_by_name() -> None:
    files = read_by("integration/test_cleanup_model.py")
    assert "shared/packhorse/bookkeeping/stored_packages.py" in files
    assert "services/packhorse_services/subscriber/importing/importer.py" not in files
