"""Extension of griffe, which reads the sources for the reference: how rocketpy declares what others write out.

    x: int = attrs.field(default=1, validator=between(0, 9))    the default 1, and the text "0 to 9"
    x: int = option("xMax", parse, 1, "meaning")                an option `xMax` of Spark, with its meaning
    send = blocking(Producer.send)                              the method, without `async`

Methods by which a consumer serves the rest of the client are left out.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from griffe import (
    Alias,
    Attribute,
    Class,
    Docstring,
    Expr,
    ExprCall,
    ExprDict,
    ExprKeyword,
    ExprLambda,
    Extension,
    Function,
    GriffeLoader,
    Object,
    Parameter,
    ParameterKind,
    Parameters,
)

BLOCKING = frozenset({"rocketpy.client.sync.blocking", "rocketpy.client.sync.blocking_now"})
OPTION = frozenset({"rocketpy.spark.options.option", "rocketpy.spark.options.required"})
RANGES = {"between": "{} to {}", "minus_one_or_between": "-1, or {} to {}", "ge": "at least {}"}
SERVED = (
    "rocketpy.client.consuming.rebalance.QueueOwner",
    "rocketpy.client.consuming.pull_loop.PullHost",
    "rocketpy.client.cluster.instance.ConsumerMember",
    "rocketpy.client.cluster.broker_requests.AskedConsumer",
)
"""Protocols between parts of the client: no program calls their methods."""
CONSUMERS = frozenset({"PushConsumer", "PullConsumer", "GroupMember"})


SECTION = re.compile(r"(?<!\n)\n(?=(?:Args|Returns|Raises|Source|Layout):)")


class Declarations(Extension):
    """Shows declarations as the things that they declare."""

    def on_object(self, *, obj: Object, loader: GriffeLoader, **kwargs: Any) -> None:
        """Let each section of a docstring be a paragraph: ours follow each other without a blank line."""
        if obj.docstring is not None:
            obj.docstring.value = SECTION.sub("\n\n", obj.docstring.value)

    def on_class(self, *, cls: Class, loader: GriffeLoader, **kwargs: Any) -> None:
        """Change the members of a class, once its whole package is read."""
        served = {name for path in SERVED for name in loader.modules_collection[path].members}
        for name in served & cls.members.keys() if cls.name in CONSUMERS else ():
            cls.del_member(name)
        attributes = [member for member in cls.members.values() if isinstance(member, Attribute)]
        for attribute in attributes:
            is_set = attribute.labels == {"instance-attribute"} and attribute.annotation is None  # by the constructor
            if is_set or (cls.name in CONSUMERS and attribute.docstring is None):
                cls.del_member(attribute.name)
            elif isinstance(attribute.value, ExprCall):
                read_call(cls, attribute, attribute.value, loader)
        if cls.path.startswith("rocketpy.spark.") and cls.name.endswith("Options"):
            methods = [n for n, member in cls.members.items() if member.is_function or "property" in member.labels]
            for name in methods:
                cls.del_member(name)
        decorator = next((str(each.value) for each in cls.decorators if str(each.value).startswith("attrs.")), "")
        if decorator and "kw_only" not in decorator and "__init__" not in cls.members:
            add_constructor(cls, attributes)


def read_call(cls: Class, attribute: Attribute, call: ExprCall, loader: GriffeLoader) -> None:
    """Show an attribute as the thing that a call declares."""
    if call.canonical_path == "attrs.field":
        read_field(cls, attribute, call)
    elif call.canonical_path in OPTION:
        read_option(cls, attribute, call)
    elif call.canonical_path in BLOCKING:
        read_method(cls, attribute, loader.modules_collection[expression(call.arguments[0]).canonical_path])


def expression(argument: str | Expr) -> Expr:
    assert isinstance(argument, Expr)
    return argument.value if isinstance(argument, ExprKeyword) else argument  # type: ignore[return-value]


def named(call: ExprCall) -> dict[str, str | Expr]:
    """Return the keyword arguments of a call."""
    return {argument.name: argument.value for argument in call.arguments if isinstance(argument, ExprKeyword)}


def read_field(cls: Class, attribute: Attribute, call: ExprCall) -> None:
    """Show the default of an attribute, and its range at the end of its text."""
    arguments = named(call)
    factory, validator = arguments.get("factory"), arguments.get("validator")
    attribute.value = arguments.get("default")
    if isinstance(factory, ExprLambda):
        attribute.value = factory.body
    elif factory is not None:
        attribute.value = f"{factory}()"
    text = RANGES.get(str(validator.function).rpartition(".")[2]) if isinstance(validator, ExprCall) else None
    if text and attribute.docstring is not None:
        attribute.docstring.value += f" Range: {text.format(*validator.arguments)}."
    if isinstance(metadata := arguments.get("metadata"), ExprDict):  # an option of Spark, written out
        written = dict(zip(map(unquoted, metadata.keys), metadata.values, strict=True))
        rename(cls, attribute, unquoted(written["key"]), unquoted(written["meaning"]))


def read_option(cls: Class, attribute: Attribute, call: ExprCall) -> None:
    """Show an option of Spark, `option(key, parse, default, meaning)` or `required(key, parse, meaning)`."""
    key, _, *default, meaning = call.arguments
    attribute.value = default[0] if default else None
    rename(cls, attribute, unquoted(key), unquoted(meaning))


def unquoted(text: object) -> str:
    return str(ast.literal_eval(str(text)))


def rename(cls: Class, attribute: Attribute, key: str, meaning: str) -> None:
    """Show an attribute under another name, with this text."""
    cls.del_member(attribute.name)
    attribute.name = key
    attribute.docstring = Docstring(f"{meaning[:1].upper()}{meaning[1:]}.", lineno=attribute.lineno)
    cls.set_member(key, attribute)


def read_method(cls: Class, attribute: Attribute, method: Object | Alias) -> None:
    """Show the method that a blocking one calls."""
    method = method.final_target if isinstance(method, Alias) else method
    assert isinstance(method, Function)
    shown = Function(
        attribute.name,
        parameters=method.parameters,
        returns=method.returns,
        docstring=method.docstring,
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
    )
    cls.set_member(attribute.name, shown)


def add_constructor(cls: Class, fields: list[Attribute]) -> None:
    """Add the constructor that attrs makes. Fields that it alone explains, under `Args:`, are not shown once more."""
    kind = ParameterKind.positional_or_keyword
    inherited = [f for each in reversed(cls.mro()) for f in each.members.values() if isinstance(f, Attribute)]
    taken = [
        Parameter(field.name, annotation=field.annotation, kind=kind, default=field.value)
        for field in [*inherited, *fields]
        if field.annotation is not None and "property" not in field.labels and not field.name.startswith("_")
    ]
    parameters = Parameters(Parameter("self", kind=kind), *taken)
    cls.set_member("__init__", Function("__init__", parameters=parameters, lineno=cls.lineno, endlineno=cls.lineno))
    if cls.docstring is not None and "\nArgs:" in cls.docstring.value:
        for field in fields:
            if field.docstring is None and "property" not in field.labels:
                cls.del_member(field.name)
