"""Tables whose keys are hard to walk: odd collations, composite keys, extremes, other indexes, partitions."""

WORDS = "('a'), ('B'), ('C'), ('_'), ('é'), ('Z'), ('É'), ('z '), ('10'), ('9'), (''), ('a''\\'), ('ß'), ('ss')"

# name -> DDL and rows; every chunk size must find each row exactly once.
WALKS = {
    "empty": "CREATE TABLE public.w (id int PRIMARY KEY)",
    "single row": "CREATE TABLE public.w (id int PRIMARY KEY); INSERT INTO public.w VALUES (-2147483648)",
    "sparse": "CREATE TABLE public.w (id int8 PRIMARY KEY); INSERT INTO public.w VALUES (1), (4611686018427387904),"
    " (-9223372036854775808), (9223372036854775807), (0)",
    "ids one to twelve": "CREATE TABLE public.w (id int PRIMARY KEY); INSERT INTO public.w SELECT"
    " generate_series(1, 12)",
    "collation C": f'CREATE TABLE public.w (k text COLLATE "C" PRIMARY KEY); INSERT INTO public.w VALUES {WORDS}',
    "collation of a language": 'CREATE TABLE public.w (k text COLLATE "en-x-icu" PRIMARY KEY);'
    f" INSERT INTO public.w VALUES {WORDS}",
    "case-insensitive collation": "CREATE COLLATION public.ci (provider = icu, locale = 'und-u-ks-level2',"
    " deterministic = false); CREATE TABLE public.w (k text COLLATE public.ci PRIMARY KEY);"
    f" INSERT INTO public.w VALUES {WORDS} ON CONFLICT DO NOTHING",
    "citext and uuid": "CREATE EXTENSION citext SCHEMA public; CREATE TABLE public.w (k public.citext, u uuid,"
    " PRIMARY KEY (k, u)); INSERT INTO public.w SELECT w::public.citext, md5(w || n)::uuid"
    f" FROM (VALUES {WORDS}) v(w), generate_series(1, 2) n",
    "ties in the first column": "CREATE TABLE public.w (a int, b text, c date, PRIMARY KEY (a, b, c)); INSERT"
    " INTO public.w SELECT a, chr(64 + b), date '2020-01-01' + c FROM generate_series(1, 2) a, generate_series(1, 3) b,"
    " generate_series(1, 4) c",
    "index of another order": "CREATE TABLE public.w (b int NOT NULL, k text NOT NULL, n int); CREATE UNIQUE INDEX i ON"
    ' public.w (b DESC, k COLLATE "C" text_pattern_ops); ALTER TABLE public.w REPLICA IDENTITY USING INDEX i;'
    f" INSERT INTO public.w SELECT b, w, 1 FROM generate_series(1, 2) b, (VALUES {WORDS}) v(w)",
    "numeric with NaN": "CREATE TABLE public.w (n numeric PRIMARY KEY); INSERT INTO public.w VALUES ('NaN'), (1.0),"
    " (1.10), (-5), (1e30), (0.000001)",
    "float": "CREATE TABLE public.w (n float8 PRIMARY KEY); INSERT INTO public.w VALUES ('NaN'), ('-Infinity'),"
    " ('Infinity'), (0.1), (1e-300), (123456789.123456789)",
    "padded text": "CREATE TABLE public.w (k char(4) PRIMARY KEY); INSERT INTO public.w VALUES ('a'), ('ab'),"
    " ('b'), (' ')",
    "enum": "CREATE TYPE public.e AS ENUM ('z', 'a', 'm'); CREATE TABLE public.w (k public.e PRIMARY KEY);"
    " INSERT INTO public.w VALUES ('a'), ('m'), ('z')",
    "domain": "CREATE DOMAIN public.d AS varchar(9); CREATE TABLE public.w (k public.d PRIMARY KEY);"
    f" INSERT INTO public.w VALUES {WORDS}",
    "timestamps": "CREATE TABLE public.w (k timestamptz PRIMARY KEY); INSERT INTO public.w SELECT"
    " timestamptz '2021-03-28 00:59:59.999999+00' + n * interval '1 microsecond' FROM generate_series(1, 9) n",
    "partitions": "CREATE TABLE public.w (id int PRIMARY KEY, v text) PARTITION BY HASH (id); CREATE TABLE public.w0"
    " PARTITION OF public.w FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE public.w1 PARTITION OF public.w FOR"
    " VALUES WITH (MODULUS 2, REMAINDER 1); INSERT INTO public.w SELECT n, n FROM generate_series(1, 17) n",
    "inheritance": "CREATE TABLE public.w (id int PRIMARY KEY); CREATE TABLE public.child () INHERITS (public.w);"
    " INSERT INTO public.w VALUES (1), (3); INSERT INTO public.child VALUES (2)",
}
