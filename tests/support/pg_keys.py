"""Tables whose keys have types behind types: domains over enums, arrays, ranges, composites, collated domains."""

WALKS: dict[str, str] = {}
DOMAINS = """
CREATE TYPE public.mood AS ENUM ('z', 'a', 'm'); CREATE TYPE public.pair AS (a int, b text);
CREATE TYPE public.span AS RANGE (subtype = float8);
CREATE DOMAIN public.d_mood AS public.mood; CREATE DOMAIN public.dd_mood AS public.d_mood;
CREATE DOMAIN public.d_array AS int[]; CREATE DOMAIN public.d_moods AS public.mood[];
CREATE DOMAIN public.d_range AS int4range; CREATE DOMAIN public.d_span AS public.span;
CREATE DOMAIN public.d_pair AS public.pair; CREATE DOMAIN public.d_of AS public.d_array
"""
_KEYS = {
    "an enum": ("public.mood", "('z'), ('a'), ('m')"),
    "a domain over an enum": ("public.d_mood", "('z'), ('a'), ('m')"),
    "a domain over a domain over an enum": ("public.dd_mood", "('z'), ('a'), ('m')"),
    "a domain over an array": ("public.d_array", "('{2}'), ('{1,NULL}'), ('{}'), ('{10}')"),
    "a domain over a domain over an array": ("public.d_of", "('{2}'), ('{1,5}')"),
    "an array of enums": ("public.mood[]", "('{z,a}'), ('{a}'), ('{m}')"),
    "a domain over an array of enums": ("public.d_moods", "('{z,a}'), ('{a}'), ('{m}')"),
    "an array of domains": ("public.d_mood[]", "('{z,a}'), ('{a}'), ('{m}')"),
    "a range": ("int4range", "('[1,5)'), ('empty'), ('(,3)')"),
    "a domain over a range": ("public.d_range", "('[1,5)'), ('empty'), ('(,3)')"),
    "a domain over a range of one's own": ("public.d_span", "('[1,5)'), ('empty'), ('(,3)')"),
    "a multirange": ("int4multirange", "('{[1,5)}'), ('{}')"),
    "a composite": ("public.pair", "('(2,a)'), ('(10,b)'), ('(2,B)')"),
    "a domain over a composite": ("public.d_pair", "('(2,a)'), ('(10,b)'), ('(2,B)')"),
}
for _name, (_type, _values) in _KEYS.items():
    WALKS[_name] = f"{DOMAINS}; CREATE TABLE public.w (id {_type} PRIMARY KEY); INSERT INTO public.w VALUES {_values}"
    if "one's own" in _name or "array" in _name:
        continue  # with another column: one of each kind is enough
    WALKS[f"{_name}, behind another column"] = (
        f"{DOMAINS}; CREATE TABLE public.w (n int NOT NULL, id {_type} NOT NULL);"
        " CREATE UNIQUE INDEX k ON public.w (n, id); ALTER TABLE public.w REPLICA IDENTITY USING INDEX k;"
        f" INSERT INTO public.w SELECT n, v.column1::{_type} FROM (VALUES {_values}) v, generate_series(1, 2) n"
    )
for _kind in ("text", "varchar(9)", "char(4)"):
    WALKS[f"a collated domain over {_kind}"] = (
        f'CREATE DOMAIN public.d AS {_kind} COLLATE "C"; CREATE TABLE public.w (id public.d PRIMARY KEY, n public.d);'
        " INSERT INTO public.w SELECT x, x FROM unnest(ARRAY['b', 'B', 'a', 'Ä', 'A']) x"
    )
    WALKS[f"a domain over {_kind} under an index of another collation"] = (
        f"CREATE DOMAIN public.d AS {_kind}; CREATE TABLE public.w (id public.d NOT NULL);"
        ' CREATE UNIQUE INDEX k ON public.w (id COLLATE "C"); ALTER TABLE public.w REPLICA IDENTITY USING INDEX k;'
        " INSERT INTO public.w SELECT x FROM unnest(ARRAY['b', 'B', 'a', 'Ä', 'A']) x"
    )
