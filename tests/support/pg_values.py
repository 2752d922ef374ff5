"""Values of every PostgreSQL type, at its edges."""

# Each type with values at its edges; the row number is the key.
VALUES: dict[str, list[str]] = {
    "bool": ["true", "false"],
    "int2": ["-32768", "32767"],
    "int4": ["-2147483648", "2147483647"],
    "int8": ["-9223372036854775808", "9223372036854775807", "9007199254740993"],
    "float4": ["NaN", "Infinity", "-Infinity", "-0", "0.1", "1e-45", "3.4028235e38", "1e10"],
    "float8": ["NaN", "Infinity", "-Infinity", "-0", "0.1", "5e-324", "1.7976931348623157e308", "123456789012345.67"],
    "numeric(10,2)": ["0", "-0.01", "99999999.99", "1.5"],
    "numeric(38,18)": ["12345678901234567890.123456789012345678", "-0.000000000000000001"],
    "numeric(38,0)": ["9" * 38, "-" + "9" * 38],
    "numeric": ["NaN", "1.50", "1.5", "1e200", "0." + "1" * 60],
    "numeric(45,3)": ["1" * 42 + ".123"],
    "text": ["", "a\tb\\n'\"\n", "\U0001f600 é", "NULL", "\\N"],
    "varchar(5)": ["abc"],
    "char(5)": ["ab", ""],
    '"char"': ["a", ""],
    "name": ["somebody"],
    "bytea": ["\\x", "\\x00ff10", "\\x" + "ab" * 5000],
    "date": ["0001-01-01", "9999-12-31", "1970-01-01", "1582-10-10"],
    "timestamp": ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2020-02-29 24:00:00", "1999-01-01 00:00:00.5"],
    "timestamp(0)": ["2020-01-01 12:00:00.7"],
    "timestamptz": ["2021-03-28 02:30:00+01", "0001-01-02 00:00:00+00", "9999-12-31 23:59:59.999999+00"],
    "time": ["24:00:00", "00:00:00.000001"],
    "timetz": ["12:00:00+05:30"],
    "interval": ["1 year -2 mons 3 days 04:05:06.7", "-00:00:01"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "json": ['{"b": 1.0,  "a": [1, null]}'],
    "jsonb": ['{"b": 1.0,  "a": [1, null]}'],
    "xml": ["<a>é</a>"],
    "inet": ["10.0.0.1", "10.0.0.0/8", "::1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "money": ["-12.34", "1234567.89"],
    "bit(3)": ["101"],
    "varbit": ["1", "10101"],
    "int4[]": ["{1,NULL,3}", "[2:3]={1,2}", "{}"],
    "text[]": ['{"a,b",NULL,"NULL","\\"q"}'],
    "numrange": ["[1.0,2.5)", "empty"],
    "point": ["(1.1,2.2)"],
    "tsvector": ["'a':1 'b':2"],
    "oid": ["4294967295"],
    "regclass": ["pg_class", "public.hostile"],
    "pg_lsn": ["16/B374D848"],
    "public.mood": ["sad", "o'k"],
    "public.positive": ["1.250"],
    "public.pair": ['(1,"a b")'],
    "public.citext": ["AbC"],
}
TYPES = """
CREATE EXTENSION citext SCHEMA public; CREATE TYPE public.mood AS ENUM ('sad', 'o''k');
CREATE TABLE public.hostile(a int);
CREATE DOMAIN public.small AS numeric(12,3); CREATE DOMAIN public.positive AS public.small CHECK (VALUE > 0);
CREATE TYPE public.pair AS (a int, b text)
"""
