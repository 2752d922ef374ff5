"""Whole drivers whose tables go back to cuts, in any order and killed on the way, and forward again between them.

TAILRACE_SOAK_REWINDS: rounds (default 3); each makes two cuts and goes back to one of all.
"""

import os
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from demo.compare import READERS
from support.postgres import PostgresServer
from support.proof.harness import SMALL, Begin, Proof
from support.proof.process import ENVIRONMENT, forked, status
from support.real_replicator import NAME, Shop, cluster
from support.real_replicator import TABLES as TABLES_OF_SHOP
from support.resources import request
from support.seam_names import checked
from support.versions import turns
from support.waiting import until
from tailrace.cli.client import DriverClient
from tailrace.driver.process.run_dir import RunFolder

ROUNDS = int(os.environ.get("TAILRACE_SOAK_REWINDS", "3"))
NAMES = ("proof.giro", "proof.savings")
KEYS = 40
TABLES = f"""
CREATE TABLE proof.giro (id int PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE proof.savings (id int PRIMARY KEY, balance bigint NOT NULL);
INSERT INTO proof.giro SELECT n, n FROM generate_series(1, {KEYS}) n;
INSERT INTO proof.savings SELECT n, n FROM generate_series(1, {KEYS}) n;
"""
SEAM = "rewind.after-table=kill@1"


def statement(random: Random) -> str:
    name, key, amount = random.choice(NAMES), random.randint(1, 2 * KEYS), random.randint(-1000, 1000)
    match random.randrange(8):
        case 0:
            return f"DELETE FROM {name}"  # a TRUNCATE may have the table read again: no way back before that
        case 1 | 2:
            return f"DELETE FROM {name} WHERE id % 7 = {key % 7}"
        case 3 | 4:
            return f"UPDATE {name} SET balance = balance + {amount} WHERE id % 3 = {key % 3}"
        case 5:
            return f"UPDATE {name} SET id = id + {3 * KEYS} WHERE id = {key}"
        case _:
            return (
                f"INSERT INTO {name} SELECT n, {amount} FROM generate_series({key}, {key + 9}) n"
                " ON CONFLICT (id) DO UPDATE SET balance = excluded.balance"
            )


def whole(proof: Proof) -> bool:
    found = status(proof.deployment)
    if found is None or not found["snapshots"] or any(shot["state"] != "Completed" for shot in found["snapshots"]):
        return False
    return [table["state"] for table in found["tables"]] == ["REPLICATING"] * len(NAMES)


def holds(client: DriverClient, name: str) -> bool:
    """Makes the cut, again if it lacks a table: the journal may not know yet that the first snapshot has ended."""
    made = next((cut for cut in client.cuts() if cut.name == name), None) or client.make_cut(name)
    if not made.waits and not made.complete:
        client.drop_cut(name)
    return made.complete


def source(server: PostgresServer) -> list[set[tuple[Any, ...]]]:
    with server.connect() as connection:
        return [set(connection.execute(f"SELECT id, balance FROM {name}".encode()).fetchall()) for name in NAMES]


def copied(proof: Proof, name: str) -> set[tuple[Any, ...]]:
    read = READERS[proof.deployment.format]
    found = read(proof.deployment.lake / name.replace(".", "/")).select(["id", "balance"]).to_pylist()
    assert len(found) == len({row["id"] for row in found})
    return {(row["id"], row["balance"]) for row in found}


def rewind(proof: Proof, cut: str, seams: str) -> tuple[int, str]:
    output, once = proof.deployment.folder / "rewind.log", proof.deployment.folder / "rewind-seams"
    output.write_text("")
    once.mkdir(exist_ok=True)
    for mark in once.iterdir():
        mark.unlink()
    given = ("rewind", "-f", str(proof.deployment.manifest), *proof.here, "--to-cut", cut)
    environment = ENVIRONMENT | {"TAILRACE_SEAMS": checked(seams), "TAILRACE_SEAMS_ONCE": str(once)}
    return forked(given, environment, output).wait(240), output.read_text()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_tables_go_back_and_forth_whoever_is_killed(prove: Begin, postgres: PostgresServer, format: str) -> None:
    random = Random(5)
    proof = prove(format, seed=5, rows=SMALL, apply={"freshness": "200ms"}, tables={"include": list(NAMES)})
    postgres.execute(TABLES)
    held: dict[str, list[set[tuple[Any, ...]]]] = {}
    kills = rewinds = 0
    for number in range(ROUNDS):
        run = proof.deployment.start()
        run.until(lambda: whole(proof) and not proof.differences(*NAMES), 300, "both tables are whole")
        client = DriverClient.of(RunFolder.of(proof.deployment.name, proof.deployment.state))
        for half in "ab":
            for _ in range(random.randint(5, 20)):
                postgres.execute(statement(random))
            name = f"cut{number}{half}"
            run.until(partial(holds, client, name), 120, "the cut is held")
            held[name] = source(postgres)
        postgres.execute(statement(random))
        run.until(lambda: not proof.differences(*NAMES), 120, "all is written")
        assert run.stop() == 0, run.tail()
        for seam in (SEAM, ""):
            cut = random.choice(list(held))
            code, said = rewind(proof, cut, seam)
            if seam:
                assert code in (0, -9), said  # tables that are there already are passed over
                kills += code == -9
                code, said = rewind(proof, cut, "")
            assert code == 0, said
            rewinds += 1
            assert [copied(proof, name) for name in NAMES] == held[cut], f"{cut}: {said}"
    code, said = rewind(proof, min(held), "")
    assert code == 0, said
    last = max(held)
    run = proof.deployment.start("--stop-at", last)
    run.until(lambda: [copied(proof, name) for name in NAMES] == held[last], 240, "at the cut")
    run.until(lambda: (status(proof.deployment) or {})["state"] == "Suspended", 120, "it says so")
    assert [copied(proof, name) for name in NAMES] == held[last], "and stays there"
    assert run.stop() == 0, run.tail()
    run = proof.deployment.start()
    run.until(lambda: not proof.differences(*NAMES), 300, "replayed")
    postgres.execute("UPDATE proof.giro SET balance = 3 WHERE id < 50")
    run.until(lambda: not proof.differences(*NAMES), 120, "it goes on")
    assert run.stop() == 0, run.tail()
    assert kills and rewinds >= ROUNDS, (kills, rewinds)
    print(f"{format}: {len(held)} cuts, {rewinds} rewinds, {kills} killed")


@pytest.mark.timeout(1800)
def test_a_rewind_in_kubernetes_stays_goes_on_and_happens_once(postgres: PostgresServer, tmp_path: Path) -> None:
    """A real API server, the operator, and a driver as a process."""
    shop = Shop(postgres, tmp_path / "data")
    with cluster(shop, tmp_path / "cluster", "rewind", "127.0.42.1") as here:
        here.apply(cuts={"every": "1m", "keep": 50}, apply={"freshness": "500ms"})
        here.equal()
        seen = set(shop.log().cuts)

        def fresh() -> str | None:
            """A cut that was begun after the source stood still."""
            made = [cut for name, cut in shop.log().cuts.items() if name not in seen and not cut.awaited]
            return made[-1].name if made and not made[-1].without else None

        cut = until(fresh, "a cut by the clock", 180)
        held = in_lake(shop)
        shop.write()
        here.equal()
        assert in_lake(shop) != held
        here.patch(apply={"suspend": True, "freshness": "500ms"})
        wanted = request("back", replicator=NAME, tables=["*.*"], mode="Rewind", rewind={"toCut": cut})
        here.place.apply(wanted)
        here.place.kubectl("wait", "snapreq/back", "--for=condition=Complete", "--timeout=240s")
        assert in_lake(shop) == held
        shop.write()
        position = shop.log().position
        until(lambda: shop.log().position > position, "capture goes on", 60)
        here.place.kubectl("delete", "snapreq", "back", "--timeout=60s")
        here.patch(apply={"suspend": False, "freshness": "500ms"})
        here.equal()
        here.patch(apply={"suspend": True, "freshness": "500ms"})
        now = in_lake(shop)
        here.place.apply(wanted)
        until(lambda: here.place.get("snapreq/back").get("status", {}).get("state") == "Failed", "it is refused", 120)
        assert "was carried out before" in here.place.get("snapreq/back")["status"]["message"]
        assert in_lake(shop) == now
        here.patch(apply={"suspend": False, "freshness": "500ms"})
        here.equal()
        here.gone()
        here.nothing_unexpected()


def in_lake(shop: Shop) -> list[list[tuple[Any, ...]]]:
    found = (READERS["delta"](shop.folder / "lake" / table.replace(".", "/")) for table in TABLES_OF_SHOP)
    return [sorted(map(tuple, (row.values() for row in rows.to_pylist())), key=repr) for rows in found]
