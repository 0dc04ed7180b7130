//! Templates that mean harm: none may hang, fill the memory, overflow the stack or panic.

use foredraft_text::template::MAX_TEMPLATE_BYTES;
use foredraft_text::{ChatRequest, ChatTemplate, Message, TextError};
use proptest::prelude::*;

fn render(source: &str) -> Result<String, TextError> {
    let template = ChatTemplate::new(source.into(), None, "<s>".into(), "</s>".into());
    template.render(&ChatRequest::new(vec![Message::user("hi")]))
}

/// Runs `source` on the stack of a thread as servers have them, and wants it to fail.
fn fails(source: &str) -> TextError {
    let source = source.to_owned();
    let shown = source.chars().take(60).collect::<String>();
    let thread = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || render(&source));
    let result = thread.expect("a thread").join().expect("no panic");
    result.map(|text| text.len()).expect_err(&shown)
}

#[test]
fn loops_without_end_run_out_of_budget() {
    let nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
    for source in [
        nested,
        "{% macro f() %}{% for i in range(9) %}{{ f() }}{% endfor %}{% endmacro %}{{ f() }}",
    ] {
        let error = fails(source);
        assert!(
            matches!(
                error,
                TextError::TemplateBudget { .. } | TextError::TemplateFailed(_)
            ),
            "{error}"
        );
    }
}

#[test]
fn text_that_doubles_runs_out_of_budget() {
    for grow in [
        "{% set ns.x = ns.x ~ ns.x %}",
        "{% set ns.x = ns.x + ns.x %}",
        "{% set ns.x = ns.x * 2 %}",
        "{% set ns.x = ns.x.replace('a', 'aa') %}",
        "{% set ns.x = ns.x|replace('a', 'aa') %}",
        "{% set ns.x = [ns.x, ns.x]|join %}",
        "{% set ns.x = [ns.x, ns.x]|string %}",
        "{% set ns.x = ''.join([ns.x, ns.x]) %}",
        "{% set ns.x = '{}{}'.format(ns.x, ns.x) %}",
        "{% set ns.x = ns.x|indent(1000)|tojson(indent=60) %}",
        "{% set ns.x = ns.x.split('')|list|join('aa') %}",
    ] {
        let source = format!(
            "{{% set ns = namespace(x='aaaa') %}}{{% for i in range(99999) %}}{grow}{{% endfor %}}{{{{ ns.x }}}}"
        );
        let error = fails(&source);
        assert!(
            matches!(
                error,
                TextError::TemplateBudget { .. } | TextError::TemplateFailed(_)
            ),
            "{grow}: {error}"
        );
    }
}

/// A value that contains itself many times over is small to build and endless to walk.
#[test]
fn shared_values_run_out_of_budget() {
    let namespaces = "{% set ns = namespace(x=['a'], y=['a']) %}";
    let walks = [
        "{{ ns.x }}",
        "{{ ns.x|tojson }}",
        "{{ ns.x ~ '' }}",
        "{{ ns.x == ns.y }}",
        "{{ ns.x|upper }}",
        "{{ [ns.x]|unique|list }}",
        "{{ {ns.x: 1} }}",
    ];
    let grow = "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}";
    let mut sources: Vec<String> = walks
        .iter()
        .map(|walk| format!("{namespaces}{{% for i in range(60) %}}{grow}{{% endfor %}}{walk}"))
        .collect();
    for grow in [
        "{% set ns.x = {'a': ns.x, 'b': ns.x} %}",
        "{% set ns.x = (ns.x, ns.x) %}",
        "{% set ns.x = dict(a=ns.x, b=ns.x) %}",
        "{% set ns.x = namespace(a=ns.x, b=ns.x) %}",
        "{% set ns.x = [none, none]|map('default', ns.x, true)|list %}",
        "{% set ns.x = [[ns.x] * 3] %}",
        "{% set ns.x = (ns.x + ns.x)|batch(9)|list %}",
        "{% set ns.x = [ns.x + ns.x] %}",
        "{% set ns.x = ns.x|zip(ns.x)|list %}{% set ns.x = [ns.x, ns.x] %}",
    ] {
        sources.push(format!(
            "{namespaces}{{% for i in range(60) %}}{grow}{{% endfor %}}{{{{ ns.x ~ '' }}}}"
        ));
    }
    sources.push(format!(
        "{{% set x = ['a'] %}}{}{{{{ x ~ '' }}}}",
        "{% set x = [x, x] %}".repeat(60)
    ));
    sources.push(format!(
        "{{% with x = ['a'] %}}{}{{{{ x ~ '' }}}}",
        "{% with x = [x, x] %}".repeat(60)
    ));
    sources.push(format!(
        "{{% set x = ['a'] %}}{}{{{{ x ~ '' }}}}",
        "{% for x in [[x, x]] %}".repeat(60)
    ));
    sources.push("{% macro f(x, n) %}{% if n %}{{ f([x, x, x, x, x, x, x, x], n - 1) }}{% else %}{{ x ~ '' }}{% endif %}{% endmacro %}{{ f('a', 20) }}".into());
    sources.push("{% for x in [['a']] recursive %}{% if loop.depth < 25 %}{{ loop([[x, x, x, x]]) }}{% else %}{{ x ~ '' }}{% endif %}{% endfor %}".into());
    for source in sources {
        let error = fails(&source);
        assert!(
            !matches!(error, TextError::TemplateRefused(_)),
            "{source}: {error}"
        );
    }
}

#[test]
fn deep_nesting_is_no_overflow() {
    for source in [
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = namespace(a=ns.x) %}{% endfor %}ok",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = ns.x|batch(1) %}{% endfor %}{{ ns.x ~ '' }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    ] {
        fails(source);
    }
    for (open, middle, close) in [
        ("a~", "1", ""),
        ("2**", "1", ""),
        ("1 if ", "1", ""),
        ("a and ", "1", ""),
        ("x[:]", "", ""),
        ("(", "1", ")"),
        ("[", "", "]"),
        ("not ", "1", ""),
        ("-", "1", ""),
        ("1 + (", "1", ")"),
        ("{1:", "1", "}"),
        ("x[", "1", "]"),
    ] {
        let source = format!(
            "{{{{ {}{middle}{} }}}}",
            open.repeat(100_000),
            close.repeat(100_000)
        );
        fails(&source);
    }
    fails(&format!(
        "{}{}",
        "{% if true %}".repeat(50_000),
        "{% endif %}".repeat(50_000)
    ));
}

#[test]
fn size_is_limited_and_files_are_out_of_reach() {
    let large = " ".repeat(MAX_TEMPLATE_BYTES + 1);
    assert!(
        fails(&large)
            .to_string()
            .contains("more than the limit of 131072")
    );
    for source in [
        "{% include '/etc/passwd' %}",
        "{% import 'x' as x %}{{ x }}",
        "{% extends 'chat_template' %}",
        "{% include 'chat_template' %}",
    ] {
        fails(source);
    }
    fails("{{ 'x' * 10000000000 }}");
    fails("{{ range(1000000000)|list }}");
    fails("{{ 'x'|center(10000000000) }}");
    fails("{{ '%1000000000d'|format(1) }}");
    fails("{{ '{:1000000000}'.format(1) }}");
    fails("{{ 10 ** 1000000 }}");
}

#[test]
fn a_bad_template_is_an_error_that_says_where() {
    let error = fails("line one\n{% if %}");
    assert!(
        matches!(&error, TextError::TemplateSyntax(message) if message.contains("line 2")),
        "{error}"
    );
    let error = fails("{{ raise_exception('System role not supported') }}");
    assert_eq!(
        error.to_string(),
        "the model's chat template refuses this conversation: System role not supported"
    );
}

proptest! {
    #[test]
    fn any_text_is_a_template_or_an_error(source in "(\\{\\{|\\{%|%\\}|\\}\\}| |-|if|for|in|set|x|=|endif|endfor|messages|\\[|\\]|0|\\.|\\||tojson|'|\n|~|generation|endgeneration|\\PC){0,40}") {
        let _ = render(&source);
    }
}
