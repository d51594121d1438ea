"""The reference for chat templates: jinja2 itself, set up as Hugging Face's transformers sets it up."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 11, 5, 9, 7, 3)


class Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what an assistant said; for the text it is a call block."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def _raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


_ENVIRONMENT = environment()
_COMPILED = {}


def render(request):
    """The answer to one request of chat_template_probe: ("text", text) or ("error", message)."""
    try:
        source = request["template"]
        if source not in _COMPILED:
            _COMPILED[source] = _ENVIRONMENT.from_string(source)
        variables = {
            "messages": request["messages"],
            "tools": request.get("tools"),
            "documents": None,
            "add_generation_prompt": request.get("add_generation_prompt", True),
            "bos_token": request.get("bos_token", "<s>"),
            "eos_token": request.get("eos_token", "</s>"),
        }
        variables.update(request.get("variables") or {})
        return "text", _COMPILED[source].render(**variables)
    except Exception as error:  # pylint: disable=broad-except
        return "error", f"{type(error).__name__}: {error}"
