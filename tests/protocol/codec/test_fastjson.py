"""fastjson's dialect: what it writes is read, and what we write is what it writes."""

import json
import re

import pytest
from aerobee.protocol.codec import fastjson
from aerobee.protocol.codec.fastjson import ObjectKey, dump, parse, quote_keys


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            '{"a":[1,-2,3.5,1e3,true,false,null,"x"]}',
            {"a": [1, -2, 3.5, 1000.0, True, False, None, "x"]},
        ),
        ('{0:"a:1",1:"b:2"}', {0: "a:1", 1: "b:2"}),
        ('{"t@g":{0:5,-1:6}}', {"t@g": {0: 5, -1: 6}}),
        ("{code:1,$x:'it\\'s \"so\"','k':'\\u4e2d'}", {"code": 1, "$x": 'it\'s "so"', "k": "中"}),
        ('{"a":1,,"b":[1,,2,],}', {"a": 1, "b": [1, 2]}),
        (' { "a" : [ 1 , { b : 2 } ] } ', {"a": [1, {"b": 2}]}),
        ('{"line":"a\nb"}', {"line": "a\nb"}),
        (r'["\ud800","x\udc00y",{k:"\ud83d\udc1d"}]', ["?", "x?y", {"k": "🐝"}]),
        ("[]", []),
        ("{}", {}),
    ],
)
def test_what_fastjson_accepts_is_read(text: str, value: object) -> None:
    assert parse(text) == value
    assert parse(text.encode()) == value


def test_an_object_as_a_key_is_a_hashable_form_of_itself() -> None:
    found = parse('{{"topic":"T","queueId":1}:{"a":2},{"topic":"T","queueId":2,"x":[{}]}:{"a":3}}')
    first = ObjectKey.of({"queueId": 1, "topic": "T"})
    assert found[first] == {"a": 2}
    assert dict(first) == {"queueId": 1, "topic": "T"}
    assert [dict(key)["queueId"] for key in found] == [1, 2]


def test_integer_keys_stay_apart_from_the_same_text() -> None:
    assert parse('{1:"number","1":"text"}') == {1: "number", "1": "text"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"a":[{"x":1},{"$ref":"$.a[0]"}]}', {"a": [{"x": 1}, {"x": 1}]}),
        (
            '{"a":{"b.c":{"x":1}},"d":{"$ref":"$.a.b\\\\.c"}}',
            {"a": {"b.c": {"x": 1}}, "d": {"x": 1}},
        ),
        ('{"m":{7:{"x":1}},"d":{"$ref":"$.m.7"}}', {"m": {7: {"x": 1}}, "d": {"x": 1}}),
        ('{"m":{7:{"x":1}},"d":{"$ref":"$.m[7]"}}', {"m": {7: {"x": 1}}, "d": {"x": 1}}),
    ],
)
def test_a_reference_is_the_object_it_leads_to(text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":{"$ref":"$.b"}}', "leads nowhere"),
        ('{"a":{"b":{"$ref":"$.a"}}}', "holds it"),
        ('{"a":{"$ref":"$"}}', "holds it"),
        ('{"a":{"$ref":".."}}', "only paths from the root"),
    ],
)
def test_a_reference_that_leads_nowhere_or_in_a_circle_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(text)


def test_references_that_multiply_are_stopped() -> None:
    levels = [f'"l{n}":[{{"$ref":"$.l{n - 1}"}},{{"$ref":"$.l{n - 1}"}}]' for n in range(1, 40)]
    with pytest.raises(ValueError, match=r"more than 1000000 values"):
        parse('{"l0":[1,2],' + ",".join(levels) + "}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "character 0, found the end"),
        ("{", "character 1, found the end"),
        ('{"a"}', "a colon expected at character 4"),
        ('{"a":1 "b":2}', "a comma or } expected at character 7"),
        ("[1 2]", "a comma or ] expected at character 3"),
        ('{"a":tru}', "a value expected at character 5"),
        ("{'a:1}", "a closing ' expected at character 1"),
        ('{"a":1}x', "the end expected at character 7"),
        ('{1.5:"x"}', "an integer or an object expected"),
        ('{"a":"x}', "Unterminated string"),
        (b'{"a":"\xff"}', "invalid start byte"),
    ],
)
def test_a_text_that_is_not_json_says_where_it_stops_being_so(text: str, place: str) -> None:
    with pytest.raises(ValueError, match=re.escape(place)):
        parse(text)


def test_a_text_over_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="12 bytes is over the limit of 11 bytes"):
        parse('["0123456"]\n', bytes_max=11)
    assert parse('["0123456"]\n', bytes_max=12) == ["0123456"]
    with pytest.raises(ValueError, match="7 bytes is over the limit of 6 bytes"):
        parse('{0:"a"}', lenient_bytes_max=6)


def test_nesting_deeper_than_the_limit_is_refused() -> None:
    deep = fastjson.DEPTH_MAX
    assert parse("{a:" * deep + "1" + "}" * deep)
    with pytest.raises(ValueError, match=f"deeper than the limit of {deep} levels"):
        parse("{a:" * (deep + 1) + "1" + "}" * (deep + 1))
    with pytest.raises(ValueError, match="deeper"):
        parse("[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": None, "c": {"d": None}}, '{"b":1,"c":{}}'),
        ({1: "b", 0: "a", 10: "c"}, '{0:"a",1:"b",10:"c"}'),
        ({ObjectKey.of({"b": 1, "a": "x"}): 5}, '{{"a":"x","b":1}:5}'),
        (
            [1, 1.0, 0.5, True, 'q"\\\n中', (), {"z", "y"}],
            '[1,1.0,0.5,true,"q\\"\\\\\\n中",[],["y","z"]]',
        ),
        (float("nan"), "null"),
        (None, "null"),
    ],
)
def test_values_are_written_as_fastjson_writes_them(value: object, text: str) -> None:
    assert dump(value).decode() == text


def test_standard_json_quotes_keys_and_can_be_ascii() -> None:
    value = {"m": {0: "中"}, "o": {ObjectKey.of({"a": 1}): 2}}
    assert dump(value, bare_keys=False) == '{"m":{"0":"中"},"o":{"{\\"a\\":1}":2}}'.encode()
    assert dump({"m": {0: "中"}}, ascii_only=True) == b'{"m":{0:"\\u4e2d"}}'


def test_what_is_written_reads_back_the_same() -> None:
    value = {"a": {0: [1, {"x": "\x00\x1f\u2028"}]}, "o": {ObjectKey.of({"q": {"r": [1]}}): 1.25}}
    assert parse(dump(value)) == value


def test_a_value_without_a_json_form_is_named() -> None:
    with pytest.raises(ValueError, match="a bytes has no JSON form: b'x'"):
        dump({"a": b"x"})


def test_objects_that_are_keys_get_quotes_and_other_objects_do_not() -> None:
    key = json.dumps({"t": 'x}\\{:"', "q": 1}).encode()
    text = b'{"a":{%b:{"b":[{"c":1},{"d":2}]} ,{ }:[{},{}]},"s":%b}'
    string = json.dumps('{{"a":1}:2}').encode()
    quoted = quote_keys(text % (key, string))
    assert quote_keys(quoted) == quoted
    assert json.loads(quoted) == {
        "a": {key.decode(): {"b": [{"c": 1}, {"d": 2}]}, "{ }": [{}, {}]},
        "s": '{{"a":1}:2}',
    }


def test_integer_keys_get_quotes_and_nothing_else_does() -> None:
    text = rb'{"a{1:":{1:2,-3 :"x,4:y\"{5:", 6: [7,8]},' + b"\n\t9:{}}"
    quoted = rb'{"a{1:":{"1":2,"-3" :"x,4:y\"{5:", "6": [7,8]},' + b'\n\t"9":{}}'
    assert quote_keys(text) == quoted
    assert quote_keys(quoted) == quoted
    json.loads(quoted)
