"""The benchmark's stages come to their ends; how fast a hundredth of a size is says nothing."""

from pathlib import Path

import pytest

from bench import capture, mysql, snapshot, source


@pytest.mark.timeout(120)
def test_capture_and_snapshot_measure_every_row(tmp_path: Path) -> None:
    with source.server() as server:
        results = [
            *capture.case(server, tmp_path, "inserts", 500, source.insert),
            *snapshot.run(server, tmp_path, 0.001),
        ]
    assert [(result.role, result.rows) for result in results] == [
        ("tailrace", 500),
        ("ceiling", 500),
        ("tailrace", 2000),
        ("tailrace", 2000),
        ("ceiling", 2000),
    ]


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")  # by the incumbent
def test_mysql_is_measured_to_the_last_row(tmp_path: Path) -> None:
    with mysql.server() as server:
        results = [
            *mysql.case(server, tmp_path, "inserts", 500, mysql.insert_one_by_one),
            *mysql.chunks(server, tmp_path, 2000),
        ]
    assert [(result.role, result.rows) for result in results] == [
        ("tailrace", 500),
        ("ceiling", 500),
        ("incumbent", 25),
        ("tailrace", 2000),
        ("ceiling", 2000),
        ("incumbent", 200),
    ]
