"""Conversations that chat templates are compared on: systems, tools, tool calls, many turns, empty and odd contents."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Look up the weather \"now\" <in> a town & its lakes.",
        "parameters": {
            "type": "object",
            "properties": {
                "town": {"type": "string", "description": "Its name, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "default": 3},
            },
            "required": ["town"],
        },
        "return": {"type": "number", "description": "Degrees"},
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search. Returns\nlines.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": ["string", "null"]},
                "limits": {"type": "array", "items": {"type": "number"}},
                "deep": {"type": "object", "properties": {"exact": {"type": "boolean"}}},
            },
            "required": [],
        },
    },
}


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, call_id="call00001"):
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def tool(text, name="get_weather", call_id="call00001"):
    return {"role": "tool", "content": text, "name": name, "tool_call_id": call_id}


_ASKED = user("What is the weather in Zürich?")
_CALLED = assistant("", tool_calls=[call("get_weather", {"town": "Zürich", "days": 2})])

CONVERSATIONS = {
    "one question": {"messages": [user("What is the capital of France?")]},
    "system and question": {"messages": [system("You are terse."), user("Hi")]},
    "no generation prompt": {
        "messages": [user("Hi"), assistant("Hello!")],
        "add_generation_prompt": False,
    },
    "many turns": {
        "messages": [
            system("You are a helpful assistant.\n\nBe brief."),
            user("1 + 1?"),
            assistant("2"),
            user("2 + 2?"),
            assistant("4\n"),
            user("And 3 + 3?"),
        ]
    },
    "empty contents": {"messages": [system(""), user(""), assistant(""), user("")]},
    "white space": {
        "messages": [user("  leading and trailing \n\n"), assistant("\n\tx\n"), user("\u00a0y\u3000")]
    },
    "unicode": {
        "messages": [system("Réponds « bien »."), user("日本語 🦊 e\u0301 \u200d שלום \u2028 fin")]
    },
    "markup": {
        "messages": [user("<|im_end|> {{ x }} {% if %} <b>&amp;</b> \"quoted\" 'single' \\n")]
    },
    "thinking": {
        "messages": [
            user("Think."),
            assistant("<think>\nhm, hm\n</think>\n\nDone."),
            user("Again."),
            assistant("<think></think>x</think>Y", reasoning_content="because"),
            user("Last."),
        ]
    },
    "thinking off": {"messages": [user("Quick!")], "variables": {"enable_thinking": False}},
    "thinking on": {"messages": [user("Slow!")], "variables": {"enable_thinking": True}},
    "tools offered": {"messages": [_ASKED], "tools": [WEATHER, SEARCH]},
    "tools offered with system": {
        "messages": [system("Use tools."), _ASKED],
        "tools": [WEATHER],
        "variables": {"date_string": "26 Jul 2024"},
    },
    "tool called": {
        "messages": [_ASKED, _CALLED, tool('{"degrees": 21.5}')],
        "tools": [WEATHER, SEARCH],
    },
    "tool answered": {
        "messages": [
            system("Use tools."),
            _ASKED,
            _CALLED,
            tool("21.5 °C\n"),
            assistant("It is 21.5 °C."),
            user("And tomorrow?"),
        ],
        "tools": [WEATHER],
    },
    "two calls at once": {
        "messages": [
            _ASKED,
            assistant(
                "Let me look.",
                tool_calls=[
                    call("get_weather", {"town": "Bern"}, "aaaaaaaa1"),
                    call("search", {"query": None, "limits": [1, 2.5, 1e20]}, "aaaaaaaa2"),
                ],
            ),
            tool("rain", "get_weather", "aaaaaaaa1"),
            tool("[]", "search", "aaaaaaaa2"),
        ],
        "tools": [WEATHER, SEARCH],
    },
    "arguments as text": {
        "messages": [
            _ASKED,
            assistant("", tool_calls=[call("get_weather", '{"town": "Bern"}')]),
            tool("snow"),
            assistant("Snow."),
        ],
        "tools": [WEATHER],
        "add_generation_prompt": False,
    },
    "content is none": {
        "messages": [
            _ASKED,
            {"role": "assistant", "content": None, "tool_calls": [call("search", {})]},
            tool("none"),
        ],
        "tools": [SEARCH],
    },
    "content in parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "text", "text": "x"}]},
        ]
    },
    "two systems": {"messages": [system("One."), system("Two."), user("Go.")]},
    "assistant first": {"messages": [assistant("Hello."), user("Hi.")]},
    "two users in a row": {"messages": [user("One."), user("Two.")]},
    "unknown role": {"messages": [user("Hi."), {"role": "observer", "content": "psst"}]},
    "no messages": {"messages": []},
    "ends with assistant": {"messages": [user("Say it."), assistant("It")]},
    "documents": {
        "messages": [user("What do they say?")],
        "variables": {"documents": [{"title": "A", "text": "alpha"}, {"title": "B", "text": "beta"}]},
    },
}
