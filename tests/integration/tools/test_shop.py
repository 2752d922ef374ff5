"""The demo's shop and the load that changes it."""

from demo import shop
from support.postgres import PostgresServer
from support.waiting import until


def newest_order(server: PostgresServer) -> int:
    return int(server.execute("SELECT max(id) FROM shop.orders")[0][0])


def load_until_an_order_comes(server: PostgresServer) -> None:
    before = newest_order(server)
    load = shop.Load(shop.session_of(server.connect), 0.001)
    load.start()
    try:
        until(lambda: newest_order(server) > before, "a new order", 20)
    finally:
        load.stop()


def test_a_load_continues_in_a_shop_that_had_one(postgres: PostgresServer) -> None:
    with postgres.connect() as connection:
        shop.create(connection, 0.001)
    load_until_an_order_comes(postgres)
    load_until_an_order_comes(postgres)
