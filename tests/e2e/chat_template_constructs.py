"""Hand-written templates for every construct of the Jinja subset; each is compared with jinja2, errors included."""

VARIABLES = {
    "name": "World",
    "empty": "",
    "text": "  Hello, Wörld!\n second line\n\nfourth ",
    "quote": "it's \"quoted\" \\ back\ttab\x07",
    "number": 7,
    "negative": -7,
    "ratio": 2.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "items": [3, 1, 2],
    "words": ["pear", "Apple", "fig", "apple"],
    "nested": {"b": {"deep": [1, {"x": None}]}, "a": [True, 2.0, "é\n"], "items": "hidden", "10": "ten"},
    "people": [
        {"name": "Ann", "age": 31, "tags": ["x"]},
        {"name": "bob", "age": 25},
        {"name": "Cid", "age": 31, "tags": []},
    ],
    "tree": [{"n": 1, "kids": [{"n": 2, "kids": []}, {"n": 3, "kids": [{"n": 4, "kids": []}]}]}],
}


def _outputs(expressions):
    """Each line of text as a template that prints the expression."""
    return ["{{ " + line.strip() + " }}" for line in expressions.strip().splitlines()]


GROUPS = {
    "white space": [
        "a\n{% if yes %}\nb\n{% endif %}\nc\n",
        "a\n  {% if yes %}  \nb\n  {% endif %}\nc",
        "a \n\n {%- if yes -%} \n\n b \n {%- endif -%} \n c",
        "a\n  {%+ if yes %}b{%+ endif %}\n",
        "a {{- name -}} \n b {{ name }}\n",
        "  {{ name }}\n  {{- name }}",
        "{# comment #}\nx {#- two -#} y\n  {# three #}\nz",
        "a{# {{ x }} {% y %} #}b",
        "a\n{#+ plus +#}\nb",
        "x\n\n\n",
        "\r\na\r\nb\rc\r\n",
        "{% if yes %}a{% endif %}\n\nb",
        "  {% if yes %}a{% endif %}  {% if yes %}b{% endif %}",
        "x  {% if yes %}a{% endif %}",
        "\t{% set a = 1 %}\t{{ a }}",
        "{%- set a = 1 -%}\u00a0\u2003x",
        "a{% if yes +%}\nb{% endif +%}\nc",
        "{{ '}}' }}{{ {'a': {'b': 1}}['a'] }}",
        "{% raw %}\n {{ x }} {% if %}\n{% endraw %}\nb",
        "a {%- raw -%} {{ x }} {%- endraw -%} b",
        "  {% raw %}  x\n  {% endraw %}\ny",
        "{% raw %}{% raw %}{% endraw %}",
        "a{%if yes%}b{%endif%}c{%-if yes-%} d {%-endif-%} e",
        "{{name}}{{-name-}}{{+number}}{{-number}}",
        "{ {x} } {% if yes %}{{ '{%' }}{% endif %} %} }}",
        "{% if yes %}\n    a\n{% else %}\n    b\n{% endif %}\n",
        "{{ name\n}}\n{{\nname }}",
    ],
    "literals": _outputs(
        r"""
        1
        1_000
        0x1F
        0b101
        0o17
        1.5
        1.
        1e3
        1.5E-3
        1e16
        1e22
        123456789012345.678
        0.0001
        0.00001
        -0.0
        1e-7
        1/3
        100.0
        9223372036854775807
        'a' "b"
        'a\nb\tc\\d\'e\"f'
        'A\x42\u0043\U00000044\101\0'
        '\é\q\
        x'
        'é🦊' ~ "日本"
        true
        True
        false
        none
        None
        []
        [1, 'two', 3.0, none, true, [4]]
        (1,)
        (1, 2)
        ()
        1, 2
        {}
        {'a': 1, 2: 'b', none: 3, 1.5: [], true: 0, (1, 2): 't'}
        {'a': 1, 'a': 2}
        {'a': 1,}
        [1, 2,]
        quote
        [quote]
        ["it's", 'say "x"', 'both \' and "', '\\', '\x00\x1f\x7f\x85\xa0\xad', '\u200b\u2028é🦊']
        nested
        people
        text
        """
    ),
    "arithmetic": _outputs(
        """
        1 + 2 * 3
        (1 + 2) * 3
        7 / 2
        8 / 2
        7 // 2
        negative // 2
        7 // -2
        negative % 3
        7 % -3
        7.5 // 2
        -7.5 // 2
        7.5 % 2
        -7.5 % 2
        2 ** 10
        2 ** 3 ** 2
        2 ** -1
        2.0 ** 0.5
        -2 ** 2
        0 ** 0
        1 - 2 - 3
        --1
        +true
        -true
        true + true
        1 + 1.5
        1e308 * 10
        'a' * 3
        3 * 'ab'
        [1] * 3
        'a' * -1
        'a' + 'b'
        [1] + [2]
        (1,) + (2,)
        'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1]
        1 / 0
        1 // 0
        1 % 0
        1.0 / 0
        1.0 % 0
        0 ** -1
        'a' + 1
        1 + 'a'
        none + 1
        [1] + (2,)
        {} + {}
        'a' - 'b'
        -'a'
        missing + 1
        1 + missing
        -missing
        'x' ~ missing
        9223372036854775807 - 1
        -9223372036854775807 - 1
        """
    ),
    "comparison": _outputs(
        """
        1 == 1.0
        1 == true
        '1' == 1
        none == false
        none == none
        [1, 2] == [1, 2.0]
        (1, 2) == [1, 2]
        {'a': 1} == {'a': 1.0}
        {'a': 1, 'b': 2} == {'b': 2, 'a': 1}
        missing == missing
        missing == none
        missing == other
        1 < 2
        1 < 2 < 3
        1 < 3 < 2
        3 > 2 >= 2 == 2
        'a' < 'b'
        'a' < 'B'
        'é' > 'z'
        [1, 2] < [1, 3]
        [1] < [1, 0]
        (1, 'a') < (1, 'b')
        1 < 'a'
        none < 1
        missing < 1
        1 < missing
        [1] < (1,)
        {} < {}
        1 != 2
        1 in [1, 2]
        1 not in [1, 2]
        'a' in 'cat'
        'x' not in 'cat'
        '' in 'cat'
        'a' in {'a': 1}
        1 in {'a': 1}
        1.0 in {1: 2}
        'a' in nested
        'x' in missing
        1 in 'cat'
        none in 'cat'
        1 in 5
        'a' in none
        [1] in {'a': 1}
        [1] in [[1]]
        not 1
        not ''
        not missing
        not []
        1 and 2
        0 and 2
        0 or 'x'
        '' or none
        missing or 'default'
        yes and no or number
        not yes and no
        not (yes and no)
        1 if yes else 2
        1 if no else 2
        1 if no
        (1 if no) is defined
        1 if no else 2 if no else 3
        'a' if yes
        1 == 1 and 2 == 2
        1 + 1 == 2
        9223372036854775807 == 9223372036854775807.0
        9223372036854775807 < 9223372036854775807.0
        """
    ),
    "subscripts": _outputs(
        """
        items[0]
        items[-1]
        items[5]
        items[5] is defined
        items['x']
        items[1.0]
        items[true]
        items[none]
        items.0
        items[missing]
        nested.a
        nested['a']
        nested.b.deep[1].x
        nested.b.missing
        nested.b.missing.more
        nested['items']
        nested.items is defined
        nested.items() | list
        nested['get']('a')
        nested.10
        missing
        missing.x
        missing['x']
        missing[0]
        missing()
        none.x
        none['x'] is defined
        number.x
        number[0]
        name[0]
        name[-1]
        name[10]
        name.x
        '日本語'[1]
        '日本語'[-1]
        items[1:]
        items[:1]
        items[:-1]
        items[::-1]
        items[-2:]
        items[5:]
        items[0:3:2]
        items[2:0:-1]
        items[::-2]
        items[none:2]
        items[:]
        name[1:3]
        name[::-1]
        name[::2]
        '日本語'[1:]
        '日本語'[:-1]
        (1, 2, 3)[1:]
        range(5)[2]
        range(5)[1:3] | list
        items['a':]
        items[1.5:]
        items[::0]
        nothing[1:]
        nested[1:]
        missing[1:]
        items[-100:100]
        items[100:-100:-1]
        items[:9223372036854775807]
        items[-9223372036854775807::9223372036854775807]
        name.upper is defined
        items.append(1)
        items.append is defined
        nested.update({'a': 1})
        nested.pop('a')
        nested.__class__
        name.__class__
        """
    ),
    "string methods": _outputs(
        r"""
        text.strip()
        text.lstrip()
        text.rstrip()
        '[' ~ '\u00a0\u2003x\x1c\x1f'.strip() ~ ']'
        'xxabcxx'.strip('x')
        'xyabcyx'.lstrip('yx')
        'abc\n\n'.rstrip('\n')
        'éaé'.strip('é')
        'a'.strip(none)
        'a'.strip(1)
        'a,b,,c'.split(',')
        'a,b,,c'.split(',', 1)
        'a,b,,c'.rsplit(',', 1)
        ' a  b c '.split()
        ' a  b c '.split(none, 1)
        ' a  b c '.rsplit(none, 1)
        ' a  b c '.split(maxsplit=1)
        'a b'.split(sep=' ')
        ''.split()
        ''.split(',')
        'a'.split('')
        'aXbX'.split('X')[-1]
        'a</think>b</think>c'.split('</think>')
        'aaa'.rsplit('aa')
        text.splitlines()
        'a\r\nb\rc\x0bd\x85e\u2028f\n'.splitlines()
        'a\nb'.splitlines(true)
        ''.splitlines()
        'a=b=c'.partition('=')
        'a=b=c'.rpartition('=')
        'abc'.partition('x')
        'abc'.rpartition('x')
        name.startswith('Wo')
        name.startswith('x')
        name.startswith(('x', 'W'))
        name.startswith('o', 1)
        name.startswith('o', 1, 1)
        name.endswith('ld')
        name.endswith(('a', 'd'))
        name.endswith('l', 0, -1)
        name.startswith(1)
        ''.startswith('', 1)
        name.find('o')
        name.find('x')
        name.rfind('l')
        '日本語'.find('語')
        'ababab'.find('b', 2)
        'ababab'.find('b', -2)
        'ababab'.rfind('b', 0, 5)
        name.index('x')
        name.index('r')
        'banana'.count('an')
        'aaa'.count('aa')
        'abc'.count('')
        'banana'.count('a', 2)
        'banana'.replace('a', 'o')
        'banana'.replace('a', 'o', 2)
        'abc'.replace('', '-')
        'abc'.replace('', '-', 2)
        'banana'.replace('x', 'y')
        'a'.replace(1, 'b')
        ', '.join(['a', 'b'])
        ', '.join('abc')
        ''.join([])
        ', '.join([1])
        ', '.join({'a': 1, 'b': 2})
        'Hello WORLD straße ǆ'.upper()
        'Hello WORLD İSTANBUL ΑΣ'.lower()
        'ΑΣ. ΑΣΑ Σ Α\u0301Σ'.lower()
        'hello wORLD'.capitalize()
        'ßa'.capitalize()
        "they're bill's friends 3rd ﬁne".title()
        'ab'.ljust(4) ~ '|'
        'ab'.rjust(4, '*')
        'ab'.center(5) ~ '|'
        'abc'.center(6) ~ '|'
        'ab'.ljust(1)
        'ab'.ljust(4, 'xx')
        'TestHook'.removeprefix('Test')
        'TestHook'.removesuffix('Hook')
        'x'.removeprefix('y')
        'abc'.isalpha()
        'ab1'.isalpha()
        '12'.isdigit()
        ''.isdigit()
        'é1'.isalnum()
        ' \t'.isspace()
        'AB1'.isupper()
        'ab1'.islower()
        '1'.islower()
        '１２'.isdecimal()
        name.upper().lower().title()
        name.upper(1)
        name.missing()
        """
    ),
    "formatting": _outputs(
        r"""
        '%s and %s' % ('a', 1)
        '%s' % 'x'
        '%s' % [1, 'a']
        '%s' % none
        '%r' % 'x'
        '%d' % 3
        '%d' % 3.9
        '%5d|%-5d|%05d|%+d' % (1, 2, 3, 4)
        '%.2f' % 3.14159
        '%8.3f|' % 2.5
        '%e' % 12345.678
        '%g %g' % (1e10, 0.0001)
        '%x %X %o' % (255, 255, 8)
        '%%'  % ()
        '100%% %s' % 'x'
        '%(a)s-%(b)d' % {'a': 1, 'b': 2}
        '%(c)s' % {'a': 1}
        '%s %s' % 'x'
        '%s' % ('a', 'b')
        'x' % 'y'
        'x' % {}
        '%d' % 'x'
        '%5s|%-5s|%.2s' % ('a', 'b', 'cde')
        '%s' % true
        '%d' % true
        '%s' % missing
        '%'
        '%' % 1
        "%s is %d"|format('x', 3)
        "%(n)s"|format(n=1)
        '{}'.format(1)
        '{} {}'.format('a', 'b')
        '{1} {0}'.format('a', 'b')
        '{x}'.format(x=3)
        '{{}} {}'.format(1)
        '{0.name} {0[age]}'.format(people[0])
        '{0[0]}'.format(items)
        '{!r}'.format('x')
        '{!s:>5}'.format(1)
        '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
        '{:5}|{:05}|{:+}|{:,}'.format(1, 2, 3, 1234567)
        '{:.2f} {:8.1f} {:e} {:%}'.format(1.005, 2.25, 1000.0, 0.5)
        '{:.3}'.format('abcdef')
        '{:x} {:#x} {:b} {:o}'.format(255, 255, 5, 8)
        '{:,.2f}'.format(1234567.891)
        '{}'.format(none)
        '{} {}'.format(1)
        '{x}'.format(1)
        '{'.format(1)
        '}'.format(1)
        '{} {0}'.format(1)
        '{:d}'.format('a')
        '{:d}'.format(true)
        '{}'.format([1, 'a'])
        '{}{}'.format(true, 1.0)
        """
    ),
    "dicts and lists": _outputs(
        """
        nested.get('a')
        nested.get('zz')
        nested.get('zz', 'd')
        nested.get('zz', none) is none
        nested.get()
        nested.get([])
        nested.keys()
        nested.keys() | list
        nested.values() | list
        nested.items()
        nested.keys() | length
        nested.keys()[0]
        {'a': 1}.items() | list
        {'a': 1}.copy()
        nested.b.items() | first
        items.index(1)
        items.count(3)
        items.index(9)
        (1, 2, 1).count(1)
        dict(a=1, b='x')
        dict({'a': 1}, b=2)
        dict([('a', 1), ('b', 2)])
        dict(1)
        range(3) | list
        range(1, 7, 2) | list
        range(3, 0, -1) | list
        range(0) | list
        range(1, 2, 0)
        range('a')
        range(200000)
        range(3) | length
        2 in range(3)
        namespace(a=1)
        namespace({'a': 1}, b='x').b
        namespace().zz
        namespace(a=1) == namespace(a=1)
        """
    ),
    "tests": _outputs(
        """
        name is defined
        missing is defined
        missing is not defined
        missing is undefined
        nested.zz is defined
        missing.zz is defined
        nothing is none
        missing is none
        name is string
        number is string
        nested is mapping
        items is mapping
        items is iterable
        name is iterable
        number is iterable
        missing is iterable
        nested is iterable
        items is sequence
        name is sequence
        nested is sequence
        missing is sequence
        number is sequence
        (1, 2) is sequence
        range(3) is sequence
        nested.keys() is sequence
        items | map('string') is sequence
        items | map('string') is iterable
        number is number
        ratio is number
        yes is number
        name is number
        number is integer
        yes is integer
        ratio is integer
        ratio is float
        number is float
        yes is boolean
        number is boolean
        yes is true
        no is false
        1 is true
        3 is odd
        3 is even
        9 is divisibleby 3
        9 is divisibleby(2)
        1 is eq 1
        1 is equalto(2)
        1 is ne 1
        1 is lt 2
        1 is gt 2
        1 is ge 1
        1 is le 0
        1 is in [1, 2]
        3 is not in [1, 2]
        'abc' is lower
        'ABC' is upper
        'x' is odd
        none is sameas none
        true is sameas false
        raise_exception is callable
        name is callable
        not name is defined
        name is defined and number is number
        1 if name is string else 2
        'trim' is filter
        'nope' is filter
        'odd' is test
        missing is true
        [] is not none
        name is string | string
        """
    ),
    "filters": _outputs(
        r"""
        missing | default('d')
        nothing | default('d')
        nothing | default('d', true)
        empty | d('x', boolean=true)
        missing | default
        name | upper
        name | lower
        'hello world-foo (bar) [baz] o\'neil éa' | title
        'hello WORLD' | capitalize
        text | trim
        'xxaxx' | trim('x')
        number | trim
        missing | trim
        nothing | upper
        items | length
        name | count
        missing | length
        number | length
        nested | length
        items | join
        items | join(', ')
        people | join(', ', attribute='name')
        name | join('-')
        missing | join('x')
        nested | join(',')
        5 | join
        items | first
        items | last
        [] | first
        [] | last is defined
        name | first
        name | last
        nested | first
        missing | first
        missing | last
        5 | first
        name | list
        nested | list
        missing | list
        5 | list
        items | string
        1.0 | string
        '42' | int
        ' 42 ' | int
        '4_2' | int
        '4.7' | int
        'x' | int
        'x' | int(9)
        'x' | int(default=3)
        3.9 | int
        -3.9 | int
        true | int
        none | int
        [] | int(2)
        'ff' | int(base=16)
        '0xff' | int(0, 16)
        '-12' | int
        'inf' | int
        'nan' | int
        missing | int
        '2.5' | float
        'x' | float
        'x' | float(1.5)
        '1e3' | float
        ' -1_0.5 ' | float
        '.5' | float
        '5.' | float
        'infinity' | float
        3 | float
        none | float
        'banana' | replace('a', 'o')
        'banana' | replace('a', 'o', 1)
        12321 | replace(2, 'x')
        missing | replace('a', 'b')
        nested.b | items | list
        missing | items | list
        items | items | list
        nested | dictsort
        {'b': 1, 'A': 3, 'c': 2} | dictsort
        {'b': 1, 'A': 3, 'c': 2} | dictsort(true)
        {'b': 1, 'A': 3, 'c': 2} | dictsort(false, 'value')
        {'b': 1, 'A': 3, 'c': 2} | dictsort(by='value', reverse=true)
        {'b': 1, 'A': 3} | dictsort(by='x')
        {'b': 1, 2: 3} | dictsort
        items | dictsort
        people | selectattr('tags') | list
        people | selectattr('age', 'equalto', 31) | map(attribute='name') | list
        people | selectattr('tags', 'defined') | list | length
        people | rejectattr('age', 'gt', 30) | map(attribute='name') | join
        people | selectattr('tags.0', 'equalto', 'x') | list | length
        people | selectattr('name', 'in', ['Ann', 'Cid']) | list | length
        people | selectattr | list
        items | select('odd') | list
        items | reject('odd') | list
        items | select('gt', 1) | list
        [0, 1, '', 'a', none] | select | list
        [0, 1, '', 'a', none] | reject | list
        items | select('nope') | list
        missing | select('odd') | list
        words | map('upper') | list
        words | map('replace', 'p', 'q') | join(' ')
        people | map(attribute='tags', default='-') | list
        people | map(attribute='tags') | list
        people | map(attribute='tags.0') | map('default', 'none') | list
        words | map('nope') | list
        words | map | list
        items | sort
        items | sort(reverse=true)
        words | sort
        words | sort(case_sensitive=true)
        people | sort(attribute='age') | map(attribute='name') | list
        people | sort(attribute='age,name', reverse=true) | map(attribute='name') | list
        ['a', 1] | sort
        [[2, 1], [1, 2]] | sort
        nested | sort
        'bca' | sort
        items | reverse | list
        name | reverse
        nested | reverse | list
        5 | reverse
        words | unique | list
        words | unique(case_sensitive=true) | list
        people | unique(attribute='age') | map(attribute='name') | list
        [1, 1.0, true, 'a', 'A'] | unique | list
        [[1], [1]] | unique | list
        items | min
        items | max
        words | min
        [] | min
        people | max(attribute='age')
        ['a', 1] | max
        items | sum
        people | sum(attribute='age')
        items | sum(start=10)
        [] | sum
        ['a'] | sum
        [1.5, 2] | sum
        items | batch(2) | list
        items | batch(2, '-') | list
        -3 | abs
        -3.5 | abs
        'x' | abs
        2.567 | round
        2.567 | round(2)
        2.5 | round
        3.5 | round
        2.675 | round(2)
        2.1 | round(method='ceil')
        2.9 | round(0, 'floor')
        7 | round
        7 | round(1, 'ceil')
        'x' | round
        text | indent
        text | indent(2, true)
        text | indent(width=2, first=true, blank=true)
        'a\nb' | indent('> ')
        'a\n\nb\n' | indent
        '' | indent(first=true)
        5 | indent
        'ab' | center(6) ~ '|'
        '<a & "b" \'c\'>' | e
        '<a>' | escape | upper
        '<a>' | safe
        ('<a>' | safe) + '<b>'
        '<b>' + ('<a>' | safe)
        ('<a>' | safe) ~ '<b>'
        ('<a>' | e) | e
        [('<a>' | safe)]
        none | safe
        ('<a>' | safe) is string
        ('<a>' | safe | string) + '<'
        ('<A>' | safe).lower() + '<'
        (' <a> ' | safe | trim) + '<'
        ('<abc>' | safe)[1:3] + '<'
        ('<a>' | safe) * 2 + '<'
        ('<a>' | safe) == '<a>'
        ('<a>' | safe) | replace('<', '[') + '<'
        (['<a>' | safe, 'b'] | join('<')) + '<'
        name | upper | lower | title
        name|upper()
        name | nope
        'x' if yes else ('y' | nope)
        'x' | nope if no else 'z'
        number | default(1, 2, 3)
        number | default(nope=1)
        -number | abs
        items | map('string') | first
        (items | map('string'))[0] is defined
        items | select('odd') | length
        """
    )
    + [
        "{% set g = items | map('string') %}{{ g | first }}{{ g | list }}{{ g | list }}",
        "{% set g = items | select('odd') %}{{ 3 in g }}{{ g | list }}",
        "{% if no %}{{ 'x' | nope }}{% endif %}ok",
        "{% if yes %}{{ 'x' | nope }}{% endif %}",
        "{% if no %}{{ 'x' is nope }}{% endif %}ok",
        "{{ 'x' is nope }}",
        "{% for x in [] %}{{ 'x' | nope }}{% endfor %}",
    ],
    "tojson": _outputs(
        r"""
        nested | tojson
        people | tojson(indent=2)
        people | tojson(indent=4)
        nested | tojson(ensure_ascii=true)
        '🦊é\x00\x1f\x7f\u2028"\\/<>&\'' | tojson
        '🦊é\x00\x1f\x7f\u2028' | tojson(ensure_ascii=true)
        [1, 1.0, 1e100, -0.0, true, none, 'x'] | tojson
        [] | tojson(indent=2)
        {} | tojson(indent=2)
        [[], {}] | tojson(indent=2)
        {'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true)
        {'a': 1, 'b': [1, 2]} | tojson(separators=(',', ':'))
        {'a': 1} | tojson(indent='\t')
        {'a': [1]} | tojson(indent=0)
        {1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson
        {(1, 2): 'a'} | tojson
        (1, 2) | tojson
        missing | tojson
        [missing] | tojson
        range(2) | tojson
        namespace(a=1) | tojson
        nested.items() | tojson
        items | map('string') | tojson
        ('<a>' | safe) | tojson
        nested | tojson | length
        ('inf' | float) | tojson
        nested | tojson(nope=1)
        """
    ),
    "statements": [
        "{% if yes %}a{% elif no %}b{% else %}c{% endif %}",
        "{% if no %}a{% elif yes %}b{% else %}c{% endif %}",
        "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
        "{% if missing %}a{% endif %}{% if not missing %}b{% endif %}",
        "{% if yes and number > 3 %}x{% endif %}",
        "{% set a = 1 %}{{ a }}{% set a = a + 1 %}{{ a }}",
        "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
        "{% set a = 1, 2 %}{{ a }}",
        "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}",
        "{% set a, b = [1, 2, 3] %}",
        "{% set a, b = 'xy' %}{{ a }}{{ b }}",
        "{% set a %}x{{ name }}y{% endset %}{{ a }}|{{ a | length }}",
        "{% set a | upper | trim %} x{{ name }}y {% endset %}[{{ a }}]",
        "{% set a %}{% set inner = 1 %}{{ inner }}{% endset %}{{ a }}{{ inner }}",
        "{% if yes %}{% set a = 1 %}{% endif %}{{ a }}",
        "{% for i in items %}{% set a = i %}{% endfor %}{{ a }}",
        "{% set a = 0 %}{% for i in items %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}",
        "{% set ns = namespace(a=0) %}{% for i in items %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
        "{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns.x }}{{ ns.y }}{{ ns['x'] }}",
        "{% set ns = namespace(a=1) %}{% set ns.a, b = 2, 3 %}{{ ns.a }}{{ b }}",
        "{% set ns = namespace(a=1) %}{% set ns.t %}block{% endset %}{{ ns.t }}",
        "{% set d = {'a': 1} %}{% set d.a = 2 %}",
        "{% set missing_ns.a = 2 %}",
        "{% set ns = namespace(s='x') %}{{ ns }}",
        "{% with a = 1, b = name %}{{ a }}{{ b }}{% endwith %}{{ a }}",
        "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
        "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
        "{% filter upper %}abc {{ name }}{% endfilter %}",
        "{% filter trim | replace('a', 'b') %} aa {% endfilter %}|",
        "{% print 1, 'a' %}",
        "{% generation %}x{% set q = 2 %}{{ q }}{% endgeneration %}{{ q }}",
        "{% if yes: %}a{% endif %}",
        "{{ 1 }}{% if yes %}{{ 2 }}{% if no %}{{ 3 }}{% endif %}{{ 4 }}{% endif %}",
        "{% set loop = 3 %}{{ loop }}",
    ],
    "loops": [
        "{% for i in items %}{{ i }},{% endfor %}",
        "{% for i in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
        "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
        "{% for i in items %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}",
        "{% for i in items %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
        "{% for i in items %}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }}{% endfor %}",
        "{% for i in [] %}x{% else %}none{% endfor %}",
        "{% for i in items %}x{% else %}none{% endfor %}",
        "{% for i in missing %}x{% else %}none{% endfor %}",
        "{% for i in none %}x{% endfor %}",
        "{% for i in 5 %}x{% endfor %}",
        "{% for c in 'añb' %}[{{ c }}]{% endfor %}",
        "{% for k in nested %}{{ k }},{% endfor %}",
        "{% for k, v in nested.items() %}{{ k }}={{ v }};{% endfor %}",
        "{% for k, v in nested | items %}{{ k }};{% endfor %}",
        "{% for k, v in nested | dictsort %}{{ k }};{% endfor %}",
        "{% for (a, (b, c)) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }};{% endfor %}",
        "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
        "{% for a, b in [1] %}{{ a }}{% endfor %}",
        "{% for i in items if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}",
        "{% for i in items if i > 9 %}x{% else %}none{% endfor %}",
        "{% for i in items %}{% for j in items if j < i %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{% endfor %}",
        "{% for i in items %}{% for j in [1] if loop.first %}{{ i }}{% endfor %}{% endfor %}",
        "{% for i in items %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}|{{ i }}",
        "{% for i in items %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
        "{% for i in items %}{% for j in items %}{% if j == 1 %}{% break %}{% endif %}{{ j }}{% endfor %};{% endfor %}",
        "{% for i in items %}{% set x %}{{ i }}{% if i == 1 %}{% break %}{% endif %}{% endset %}{{ x }}{% endfor %}",
        "{% for i in items %}{% break %}{% else %}none{% endfor %}",
        "{% for i in items %}{% continue %}{% else %}none{% endfor %}",
        "{% for i in items %}{% if i == 1 %}{% break %}{% endif %}{% else %}none{% endfor %}",
        "{% for i in items %}{% set outer = loop %}{% for j in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
        "{% for n in tree recursive %}{{ n.n }}({{ loop.depth }}{{ loop(n.kids) }}){% endfor %}",
        "{% for n in tree %}{{ loop(n.kids) }}{% endfor %}",
        "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}",
        "{% for i in range(3) %}{{ i }}{% endfor %}{% for i in items[::-1] %}{{ i }}{% endfor %}",
        "{% for i in items | reverse %}{{ i }}{{ loop.last }}{% endfor %}",
        "{% for m in people | selectattr('age', 'gt', 30) %}{{ m.name }}{{ loop.index }}{{ loop.length }}{% endfor %}",
        "{% for i in items %}{{ i }}{% endfor %}{{ i }}{{ loop }}",
        "{% for name in ['shadow'] %}{{ name }}{% endfor %}{{ name }}",
        "{% for i in items -%}\n {{ i }}\n {%- endfor %}",
        "{% for i in items %}{{ loop.nope }}{% endfor %}",
        "{% for i in items %}{% set l = loop %}{% endfor %}{{ l }}",
        "{% set ns = namespace(l=none) %}{% for i in items %}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}",
    ],
    "macros": [
        "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=5) }}{{ m(b=1, a=2) }}",
        "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}",
        "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
        "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
        "{% macro m(a) %}{{ a }}{{ varargs | length }}{% endmacro %}{{ m(1, 2, 3) }}",
        "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
        "{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% endmacro %}{{ fact(5) }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
        "{{ m is defined }}{% macro m() %}x{% endmacro %}{{ m is defined }}",
        "{% set g = 1 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}",
        "{% macro m() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ m() }}{{ q }}",
        "{% macro m() %}{{ name }}{% endmacro %}{% for name in ['x'] %}{{ m() }}{% endfor %}",
        "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m('a') }}]",
        "{% macro m(x) %}{{ x | upper }}{% endmacro %}{{ m('a') | lower }}{{ m('b') ~ 1 }}{{ m('c') is string }}",
        "{% macro dialog(title) %}<{{ title }}>{{ caller() }}</>{% endmacro %}{% call dialog('t') %}body {{ name }}{% endcall %}",
        "{% macro each(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(i) each(items) %}<{{ i }}>{% endcall %}",
        "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'a': 2}) }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(a=1, **{'a': 2}) }}",
        "{% macro m() %}{% for i in items %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}{% endmacro %}{{ m() }}",
        "{% if yes %}{% macro m() %}in if{% endmacro %}{% endif %}{{ m() }}",
        "{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ m() }}",
    ],
    "functions and errors": [
        "{{ raise_exception('stop') }}",
        "{{ raise_exception() }}",
        "{{ strftime_now('%Y-%m-%d %d %b %Y %B %A %a %H:%M:%S %I %p %j %y %%') }}",
        "{{ strftime_now('') }}{{ strftime_now('no directive é') }}",
        "{% if strftime_now is defined %}{{ strftime_now('%d') }}{% endif %}",
        "{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ tools }}{{ documents }}{{ messages }}",
        "{{ name }",
        "{{ name",
        "{% if yes %}",
        "{% if yes %}{% endfor %}",
        "{% endif %}",
        "{% for %}{% endfor %}",
        "{% for x items %}{% endfor %}",
        "{% nope %}",
        "{% break %}",
        "{% macro m() %}{% for i in [1] %}{% endfor %}{% continue %}{% endmacro %}",
        "{{ }}",
        "{{ 1 + }}",
        "{{ (1 }}",
        "{{ [1 }}",
        "{{ 1) }}",
        "{{ 'a }}",
        "{{ a b }}",
        "{{ 'a' 1 }}",
        "{{ a..b }}",
        "{{ a. }}",
        "{{ a[ }}",
        "{{ a[] }}",
        "{{ a | }}",
        "{{ a is }}",
        "{{ a is defined is none }}",
        "{{ f(a=1, 2) }}",
        "{{ f(**a, 2) }}",
        "{{ f(1,) }}",
        "{{ raise_exception('x',) }}",
        "{{ {1} }}",
        "{{ {'a' 1} }}",
        "{{ $ }}",
        "{{ 1 ! 2 }}",
        "{{ a = 1 }}",
        "{% set true = 1 %}",
        "{% set 1 = 1 %}",
        "{% set a.b.c = 1 %}",
        "{% set %}",
        "{% for loop in items %}{% endfor %}",
        "{% macro %}{% endmacro %}",
        "{% macro m(a=1, b) %}{% endmacro %}",
        "{% macro m(1) %}{% endmacro %}",
        "{% call name %}{% endcall %}",
        "{# open",
        "{% raw %} open",
        "{{ '\\x4' }}",
        "{{ '\\ud83d' }}{{ missing.x }}",
        "{{ name() }}",
        "{{ items() }}",
        "{{ nothing() }}",
        "{{ number.real_thing() }}",
    ],
}

# Constructs outside the subset: source, what the error must name, and the line it must give.
UNSUPPORTED = [
    ("a\n{% include 'x' %}", "'include'", 2),
    ("{% extends 'x' %}", "'extends'", 1),
    ("\n\n{% block b %}{% endblock %}", "'block'", 3),
    ("{% import 'x' as y %}", "'import'", 1),
    ("{% from 'x' import y %}", "'from'", 1),
    ("{% autoescape true %}{% endautoescape %}", "'autoescape'", 1),
    ("{% do items %}", "'do'", 1),
    ("{% trans %}{% endtrans %}", "'trans'", 1),
    ("x\n{{ name | wordwrap }}", "'wordwrap'", 2),
    ("x\n{{ name | urlize }}", "'urlize'", 2),
    ("x\n{{ people | groupby('age') }}", "'groupby'", 2),
    ("x\n{% if yes %}\n{{ name | xmlattr }}{% endif %}", "'xmlattr'", 3),
    ("x\n\n{{ name is nope }}", "'nope'", 3),
    ("x\n{{ name.encode() }}", "encode", 2),
    ("x\n{{ name.zfill(3) }}", "zfill", 2),
    ("x\n{{ cycler(1) }}", "'cycler'", 2),
    ("x\n{{ joiner() }}", "'joiner'", 2),
    ("x\n{{ lipsum() }}", "'lipsum'", 2),
    ("x\n{{ items[1, 2] }}", "subscript of several values", 2),
    ("x\n{{ strftime_now('%Z') }}", "'%Z'", 2),
    ("x\n{{ range(3) }}", "range", 2),
    ("x\n{{ items | map('string') }}", "generator", 2),
    ("x\n{{ '{:{}}'.format(1, 2) }}", "fields within fields", 2),
    ("x\n{{ '%c' % 65 }}", "%c", 2),
    ("x\n{{ ('a' | safe).split('a') }}", "split()", 2),
    ("x\n{{ '\\N{DASH}' }}", "\\N{...}", 2),
    ("x\n{{ 9223372036854775808 }}", "64 bits", 2),
    ("x\n{{ 9223372036854775807 + 1 }}", "64 bits", 2),
    ("x\n{{ 3 ** 100 }}", "64 bits", 2),
]

# Templates that try to crash, hang or eat the memory. All must end with an error.
HOSTILE = [
    "{{ " + "(" * 10000 + "1" + ")" * 10000 + " }}",
    "{{ " + "[" * 10000 + "]" * 10000 + " }}",
    "{{ " + "not " * 10000 + "1 }}",
    "{{ " + "-" * 10000 + "1 }}",
    "{{ 1" + " + 1" * 10000 + " }}",
    "{{ x" + ".a" * 10000 + " }}",
    "{{ x" + " | upper" * 10000 + " }}",
    "{{ 1" + " if 1 else 1" * 10000 + " }}",
    "{{ 1" + " if 1" * 10000 + " }}",
    "{% if 1 %}" * 10000 + "{% endif %}" * 10000,
    "{% for i in x %}" * 5000,
    "{% set " + "(" * 10000 + "a" + ")" * 10000 + " = 1 %}",
    "{{ x is in " * 5000,
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
    "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in range(100000) %}{% for b in range(1000) %}x{% endfor %}{% endfor %}",
    "{{ 'x' * 1000000000000 }}",
    "{{ [1] * 1000000000000 }}",
    "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s | replace('x', 'xxxxxxxxxx') %}{% endfor %}",
    "{% set ns = namespace(s=['x']) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s=['x']) %}{% for i in range(90) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s=['x']) %}{% for i in range(90) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}",
    "{% set ns = namespace(s=['x'], t=['x']) %}{% for i in range(90) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
    "{% set ns = namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
    "{% set ns = namespace(s='ab' * 4000000) %}{% for i in range(100000) %}{{ ns.s.find('b' * 100000) }}{% endfor %}",
    "{% set s = 'ab' * 4000000 %}{% for i in range(100000) %}{% set t = s | upper %}{% endfor %}",
    "{% set s = 'ab' * 4000000 %}{% for i in range(100000) %}{{ s[-1] }}{% endfor %}",
    "{% set s = 'ab' * 4000000 %}{% for i in range(100) %}{{ s }}{% endfor %}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '%.1000000000f' % 1.5 }}",
    "{{ 'x'.center(10000000000) }}",
    "{{ [1, 2] | tojson(indent=1000000000) }}",
    "{{ 'a' | indent(10000000000, true) }}",
    "{{ ('x' * 1000000) | replace('', 'y' * 1000000) }}",
    "{{ (['x'] * 1000000) | join('y' * 1000000) }}",
    "{{ range(-9223372036854775807, 9223372036854775807) }}",
    "{% for i in range(100000) %}{% for j in [1] | batch(100000, 'x') %}{% endfor %}{% endfor %}",
    "{{ strftime_now('x' * 1000) }}",
    "{% set ns = namespace(s=(1,)) %}{% for i in range(90) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1, 2: ns.s} }}",
    "{% set ns = namespace(s=(1,)) %}{% for i in range(90) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {1: 2}.get(ns.s) }}",
    "{% set ns = namespace(s=(1,)) %}{% for i in range(90) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ ns.s in {1: 2} }}",
    "{% set ns = namespace(s=(1,)) %}{% for i in range(90) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ [ns.s] | unique | list }}",
    "{% set ns = namespace(s=(1,)) %}{% for i in range(90) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ [{1: 2}] | map(attribute=ns.s) | list }}",
    "{% set s = 'ab' * 4000000 %}{% for i in range(100000) %}{{ s | length }}{% endfor %}",
    "{% set s = 'ab' * 4000000 %}{% for i in range(100000) %}{% if s.startswith('x', 1) %}{% endif %}{% endfor %}",
    "{% set s = ' ' * 8000000 %}{% for i in range(100000) %}{{ s.strip() }}{% endfor %}",
    "{% set s = '1' * 8000000 %}{% for i in range(100000) %}{{ s | float }}{% endfor %}",
    "{% set s = 'a.' * 4000000 %}{{ [1] | map(attribute=s) | list }}",
    "{{ [1] | batch(9223372036854775807, 'x') | list }}",
    "{{ " + "a" * 1000 + " }}",
    "{% macro m(" + ",".join("a%d" % i for i in range(1000)) + ") %}{% endmacro %}",
    "{{ f(" + ",".join("a%d=1" % i for i in range(1000)) + ") }}",
]
