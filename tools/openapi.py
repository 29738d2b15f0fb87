"""The description of the console's addresses under /api, made from its table of routes.

Answers are the types that each page's function returns. Parameters are read in its source: those
of the URL that it and its helpers ask for.
"""

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, get_args, get_type_hints

from msgspec.json import schema_components
from msgspec.structs import fields

from ..console.access.rights import Right
from ..console.actions.action import Field
from ..console.actions.registry import ActionRegistry
from ..console.web import answers, request_context
from ..console.web.routes import DATA, PAGES, Page
from ..protocol.bodies.body import Body

Schema = dict[str, Any]
PREFIX = "#/components/schemas/"
ASKING = {"text": "string", "required": "string", "flag": "string", "number": "integer"}
ASKING["time_ms"] = "string"
ASKING["texts"] = "array"  # the parameter is repeated
WEB = request_context.__name__.rpartition(".")[0]
REFUSALS = {
    "400": "a parameter can't be used",
    "401": "there is no session, and name and password are missing or wrong",
    "403": "the user may not see this",
    "404": "there is no such thing in the cluster",
    "429": "too many logins failed",
    "502": "a broker or a name server refused or did not answer",
    "503": "too many logins wait, or the audit can't be read",
}
ERROR: Schema = {
    "type": "object",
    "properties": {"error": {"type": "string"}},
    "required": ["error"],
}
ACTING_REFUSALS = {
    "403": "the user may not do this, or the console only reads",
    "409": "the state is not the one that the preview showed, or the preview was used",
    "413": "the body is too large",
    "415": "the body is not application/json",
}


def document() -> bytes:
    """The whole description, as OpenAPI 3.1 in JSON."""
    pages = {f"/api/{page.path}": page for page in (*PAGES, *DATA)}
    paths = {path: {"get": _operation(page)} for path, page in pages.items()}
    paths |= acting()
    kinds = [kind for page in pages.values() for kind in _kinds(page)]
    found = {
        "openapi": "3.1.0",
        "info": {
            "title": "aerobee console",
            "version": "1",
            "description": "What the pages of the console show, as JSON, and their actions. Not "
            "known is null.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR, **schemas(kinds)},
            "responses": {
                "Refused": {
                    "description": "what is wrong, and what to do",
                    "content": _json({"$ref": "#/components/schemas/Error"}),
                }
            },
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
        "security": [{"basic": []}],
    }
    return (json.dumps(found, indent=1) + "\n").encode()


def schemas(kinds: Iterable[Any]) -> Schema:
    """The schemas of classes by their names, as the console writes their values
    (console/web/rendering.py): with every field, by the name that it has in Python."""
    shown = (*kinds, answers.Samples, answers.Preview, answers.Confirmation, answers.Redrive)
    _, found = schema_components(
        shown, schema_hook=lambda _: {"type": "string"}, ref_template=f"{PREFIX}{{name}}"
    )
    bodies = {body.__name__: body for body in Body.__subclasses__()}
    for name, schema in found.items():
        if "properties" in schema:
            body = fields(bodies[name]) if name in bodies else ()
            names = {one.encode_name: one.name for one in body}
            properties = {names.get(key, key): one for key, one in schema["properties"].items()}
            for one in properties.values():
                one.pop("default", None)
            schema |= {"properties": properties, "required": [*properties]}
        schema["description"] = " ".join(schema.get("description", name).split())
    return dict(sorted(found.items()))


def _kinds(page: Page) -> tuple[type, ...]:
    """The types of which a page's answer is one."""
    kind = get_type_hints(page.view)["return"]
    return get_args(kind) or (kind,)


def _ref(kind: type) -> Schema:
    return {"$ref": f"{PREFIX}{kind.__name__}"}


def _operation(page: Page) -> Schema:
    found = [_ref(kind) for kind in _kinds(page)]
    answer = found[0] if len(found) == 1 else {"anyOf": found}
    samples = _ref(answers.Samples)
    of_all = {"type": "object", "properties": {"samples": samples}, "required": ["samples"]}
    about = inspect.getdoc(page.view) or ""
    operation: Schema = {
        "operationId": page.path,
        "summary": " ".join(about.split("\n\n")[0].split()),
        "parameters": [
            _parameter(name, kind, is_required=is_required)
            for name, (kind, is_required) in sorted(parameters(page.view).items())
        ],
        "responses": {
            "200": {
                "description": "the figures",
                "content": _json({"allOf": [of_all, answer]}),
            },
            **_refusals(REFUSALS),
        },
    }
    if page.right > Right.VIEW:
        operation["description"] = f"Needs the right to {page.right.name.lower()}."
    return operation


def acting() -> Schema:
    """The addresses that act: previews and confirmations, and the runs of redrives."""
    found: Schema = {}
    preview, confirmation = _ref(answers.Preview), _ref(answers.Confirmation)
    for action in ActionRegistry(Path()).actions.values():
        body = {
            "type": "object",
            "properties": {one.name: _field(one) for one in action.fields},
            "required": [one.name for one in action.fields if one.is_required and not one.default],
            "additionalProperties": False,
        }
        path = f"/api/act/{action.name}"
        found[f"{path}/preview"] = _act(
            f"{action.name}-preview",
            f"{action.title}: what would change, in each place. It changes nothing.",
            body,
            preview,
        )
        found[f"{path}/confirm"] = _act(
            f"{action.name}-confirm",
            f"{action.title}: do what a preview showed, or 409 when the state is another one.",
            _texts(
                {"preview": True, "typed": action.typed is not None and action.typed_if is None}
            ),
            confirmation,
        )
    run = _ref(answers.Redrive)
    found["/api/redrives/stop"] = _act(
        "redrive-stop", "End a redrive after the letter in hand.", _texts({"run": True}), run
    )
    asked = _act("redrive-run", "How far a redrive is.", {}, run)["post"]
    del asked["requestBody"]
    asked["parameters"].append(_parameter("run", "string", is_required=True))
    found["/api/redrives/run"] = {"get": asked}
    return found


def _act(ident: str, about: str, body: Schema, answer: Schema) -> Schema:
    return {
        "post": {
            "operationId": ident,
            "summary": about,
            "parameters": [_parameter("cluster", "string", is_required=False)],
            "requestBody": {"required": True, "content": _json(body)},
            "responses": {
                "200": {"description": "what it shows or did", "content": _json(answer)},
                **_refusals(REFUSALS | ACTING_REFUSALS),
            },
        }
    }


def _field(one: Field) -> Schema:
    """A field of a form. What is not given is the present value, or the default."""
    kinds: dict[str, Schema] = {
        "number": {"type": "integer", "minimum": one.least, "maximum": one.most},
        "flag": {"type": "boolean"},
        "choice": {"type": "string", "enum": list(one.choices)},
    }
    note = f"{one.label}: {one.note}" if one.note else one.label
    return kinds.get(one.kind, {"type": "string", "maxLength": one.chars_max}) | {
        "description": note
    }


def _texts(names: dict[str, bool]) -> Schema:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": [name for name, is_required in names.items() if is_required],
        "additionalProperties": False,
    }


def _parameter(name: str, kind: str, *, is_required: bool) -> Schema:
    schema: Schema = {"type": kind}
    if kind == "array":
        schema["items"] = {"type": "string"}
    return {"name": name, "in": "query", "required": is_required, "schema": schema}


def _refusals(texts: dict[str, str]) -> Schema:
    return {
        status: {"$ref": "#/components/responses/Refused", "description": text}
        for status, text in sorted(texts.items())
    }


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def parameters(function: Callable[..., Any]) -> dict[str, tuple[str, bool]]:
    """The parameters of the URL that a function asks for: their types, and whether each visit
    needs them."""
    found: dict[str, tuple[str, bool]] = {"cluster": ("string", False)}
    for each in _with_helpers(function):
        tree = _tree(each)
        always = {id(node) for line in tree.body for node in _unconditional(line)}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ASKING
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "context"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                name, kind = str(node.args[0].value), node.func.attr
                needs = kind == "required" and each is function and id(node) in always
                was = found.get(name, ("", False))[1]
                found[name] = (ASKING[kind], needs or was)
    return found


def _with_helpers(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The function, and the functions of the console's pages that it calls."""
    found = [function]
    for each in found:
        for node in ast.walk(_tree(each)):
            helper = _helper(node.func, each) if isinstance(node, ast.Call) else None
            if helper is not None and helper not in found:
                found.append(helper)
    return found


def _helper(name: ast.expr, function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function of the pages that a function calls by this name; None for any other."""
    if not isinstance(name, ast.Name):
        return None
    found = vars(sys.modules[function.__module__]).get(name.id)
    places = (WEB, function.__module__)
    is_ours = isinstance(found, FunctionType) and found.__module__.startswith(places)
    return found if is_ours else None


def _unconditional(line: ast.stmt) -> Iterator[ast.AST]:
    if not isinstance(line, ast.If | ast.For | ast.While | ast.Try | ast.Return):
        yield from ast.walk(line)


def _tree(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    tree = ast.parse(inspect.getsource(function)).body[0]
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    return tree
