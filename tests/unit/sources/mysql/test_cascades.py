from tailrace.sources.mysql.cascades import Cascade, UnknownCascades, cascades_in

DEFINITION = """CREATE TABLE `child` (
  `id` int(11) NOT NULL DEFAULT 7 COMMENT 'CONSTRAINT `no` FOREIGN KEY (`id`) REFERENCES `x` (`id`) ON DELETE CASCADE',
  `p` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `p` (`p`),
  CONSTRAINT `child_ibfk_1` FOREIGN KEY (`p`) REFERENCES `pa``rent` (`id`) ON DELETE CASCADE ON UPDATE SET NULL,
  CONSTRAINT `ON DELETE CASCADE` FOREIGN KEY (`p`, `id`) REFERENCES `other`.`parent` (`a`, `b`) ON UPDATE CASCADE,
  CONSTRAINT `harmless` FOREIGN KEY (`p`) REFERENCES `parent` (`id`) ON DELETE NO ACTION ON UPDATE RESTRICT,
  CONSTRAINT `refused` FOREIGN KEY (`p`) REFERENCES `parent` (`id`) ON DELETE SET DEFAULT ON UPDATE SET DEFAULT,
  CONSTRAINT `plain` FOREIGN KEY (`p`) REFERENCES `parent` (`id`),
  CONSTRAINT `checked` CHECK (`p` > 1)
) ENGINE=InnoDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci"""


def test_foreign_keys_that_reach_a_table_below_its_log_are_found_in_its_definition() -> None:
    assert list(cascades_in(("d.child", DEFINITION), "d")) == [
        Cascade("d.child", ("d", "pa`rent"), ("id",), "ON UPDATE SET NULL ON DELETE CASCADE", ("p",)),
        Cascade("d.child", ("other", "parent"), ("a", "b"), "ON UPDATE CASCADE", ("p", "id")),
    ]


def test_names_may_have_ends_of_lines() -> None:
    definition = DEFINITION.replace("pa``rent", "pa\n``\nrent").replace("child_ibfk_1", "child\n\n1,")
    found = list(cascades_in(("d.child", definition), "d"))
    assert found[0] == Cascade("d.child", ("d", "pa\n`\nrent"), ("id",), "ON UPDATE SET NULL ON DELETE CASCADE", ("p",))
    assert len(found) == 2


def test_a_foreign_key_that_is_not_understood_is_told() -> None:
    """MariaDB 10.11 writes a backtick in a constraint's name once."""
    definition = DEFINITION.replace("child_ibfk_1", "child`1")
    assert list(cascades_in(("d.child", definition), "d")) == [
        UnknownCascades("d.child", denied=False),
        Cascade("d.child", ("other", "parent"), ("a", "b"), "ON UPDATE CASCADE", ("p", "id")),
    ]
    assert not list(cascades_in(("d.child", "CREATE TABLE `c` (\n  CONSTRAINT `x` CHECK (a b c)\n)"), "d"))
