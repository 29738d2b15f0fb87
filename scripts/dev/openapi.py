"""The description of the console's addresses under /api, made from its table of routes.

Fields and parameters are read in the source of each page's function: the keys of the dictionaries
that it returns, and the parameters of the URL that it and its helpers ask for.
"""

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from ...console.access.rights import Right
from ...console.web import look
from ...console.web.routes import DATA, PAGES, Page

ASKING = {"text": "string", "required": "string", "flag": "string", "number": "integer"}
ASKING["time_ms"] = "string"
WEB = look.__name__.rpartition(".")[0]
REFUSALS = {
    "400": "a parameter can't be used",
    "401": "there is no session, and name and password are missing or wrong",
    "403": "the user may not see this",
    "404": "there is no such thing in the cluster",
    "429": "too many logins failed",
    "502": "a broker or a name server refused or did not answer",
    "503": "too many logins wait, or the audit can't be read",
}
Schema = dict[str, Any]


def document() -> str:
    """The whole description, as OpenAPI 3.1 in JSON."""
    pages = {f"/api/{page.path}": page for page in (*PAGES, *DATA)}
    found = {
        "openapi": "3.1.0",
        "info": {
            "title": "aerobee console",
            "version": "1",
            "description": "What the pages of the console show, as JSON. Not known is null.",
        },
        "paths": {path: {"get": _operation(page)} for path, page in pages.items()},
        "components": {
            "schemas": {
                "Error": _object(["error"]),
                "List": _object(fields(look.listed)),
                "Samples": _object(fields(look.as_of)),
            },
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
    return json.dumps(found, indent=1) + "\n"


def _operation(page: Page) -> Schema:
    schema = _object(fields(page.view))
    schema["properties"] = {"samples": {"$ref": "#/components/schemas/Samples"}} | {
        name: {"$ref": "#/components/schemas/List"} if name == "list" else {}
        for name in schema["properties"]
    }
    about = inspect.getdoc(page.view) or ""
    operation: Schema = {
        "operationId": page.path,
        "summary": " ".join(about.split("\n\n")[0].split()),
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": is_required,
                "schema": {"type": kind},
            }
            for name, (kind, is_required) in sorted(parameters(page.view).items())
        ],
        "responses": {
            "200": {"description": "the figures", "content": _json(schema)},
            **{
                status: {"$ref": "#/components/responses/Refused", "description": text}
                for status, text in REFUSALS.items()
            },
        },
    }
    if page.right > Right.VIEW:
        operation["description"] = f"Needs the right to {page.right.name.lower()}."
    return operation


def _object(names: list[str]) -> Schema:
    return {"type": "object", "properties": {name: {} for name in names}}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def fields(function: Callable[..., Any]) -> list[str]:
    """The keys of the dictionaries that a function returns; ValueError for another result."""
    found: dict[str, None] = {}
    for node in _own(_tree(function)):
        if isinstance(node, ast.Return):
            found |= dict.fromkeys(_keys(node.value, function))
    return list(found)


def _keys(value: ast.expr | None, function: Callable[..., Any]) -> Iterator[str]:
    """The keys of a dictionary, of two with | between them, or of what a helper returns."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        yield from _keys(value.left, function)
        yield from _keys(value.right, function)
    elif isinstance(value, ast.Call) and (helper := _helper(value.func, function)) is not None:
        yield from fields(helper)
    elif isinstance(value, ast.Dict) and all(isinstance(one, ast.Constant) for one in value.keys):
        yield from (str(one.value) for one in value.keys if isinstance(one, ast.Constant))
    else:
        raise ValueError(
            f"{function.__name__} returns {ast.unparse(value) if value else None}, whose keys are "
            "not known; write them out"
        )


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
                and node.func.value.id == "look"
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


def _own(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes without those of inner functions."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from _own(node)


def _tree(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    tree = ast.parse(inspect.getsource(function)).body[0]
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    return tree
