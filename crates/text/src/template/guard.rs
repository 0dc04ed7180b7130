//! What keeps a hostile template from harming the process, before and around minijinja.
//!
//! minijinja bounds the work of rendering (fuel) and the nesting of brackets and blocks. Two things it leaves open:
//! long chains (`a~a~a~...`, `not not not ...`) become expressions as deep as they are long, which are compiled by
//! recursion and, for some operators, in quadratic time; and values that a template nests are walked by recursion.

use std::thread::Builder;

/// How much code (text outside of string literals) one `{{ ... }}` or `{% ... %}` may have. Chains of this length
/// compile within 0.1 s and 2 MB of stack; published templates stay below 1 kB.
pub const MAX_TAG_BYTES: usize = 4096;

/// Refuses tags with more code than [`MAX_TAG_BYTES`]; the error is the problem in words.
pub(super) fn check_tags(source: &str) -> Result<(), String> {
    let mut bytes = source.bytes().enumerate().peekable();
    while let Some((start, byte)) = bytes.next() {
        let close = match (byte, bytes.peek().map(|&(_, next)| next)) {
            (b'{', Some(b'{')) => b'}',
            (b'{', Some(b'%')) => b'%',
            _ => continue,
        };
        bytes.next();
        let mut code = 0;
        let mut quote = None;
        while let Some((_, byte)) = bytes.next() {
            match quote {
                Some(_) if byte == b'\\' => drop(bytes.next()),
                Some(open) if byte == open => quote = None,
                Some(_) => {}
                None if byte == close && bytes.peek().is_some_and(|&(_, next)| next == b'}') => {
                    break;
                }
                None => {
                    code += 1;
                    if matches!(byte, b'\'' | b'"') {
                        quote = Some(byte);
                    }
                }
            }
        }
        if code > MAX_TAG_BYTES {
            let line = 1 + source
                .bytes()
                .take(start)
                .filter(|&byte| byte == b'\n')
                .count();
            return Err(format!(
                "the tag that begins on line {line} has {code} bytes of code, more than the limit of {MAX_TAG_BYTES}"
            ));
        }
    }
    Ok(())
}

/// Runs `work` on a thread with a stack of its own. A panic in there (none is known) is an error here.
pub(super) fn on_own_stack<T: Send>(
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = Builder::new()
            .name("chat-template".into())
            .stack_size(stack_bytes);
        let handle = thread.spawn_scoped(scope, work);
        let handle = handle.map_err(|error| format!("there is no thread to run it on: {error}"))?;
        handle
            .join()
            .map_err(|_| "the template engine panicked".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_counted_and_strings_are_not() {
        let text = "x".repeat(10 * MAX_TAG_BYTES);
        assert_eq!(
            check_tags(&format!("{text}{{{{ '{text} \\' }}}}' ~ \"'\" }}}}{text}")),
            Ok(())
        );
        let chain = "not ".repeat(MAX_TAG_BYTES / 4 + 1);
        let error =
            check_tags(&format!("a\n\n{{{{ 'it' }}}}{{% if {chain} x %}}")).expect_err("too long");
        assert!(error.contains("line 3"), "{error}");
        assert!(
            check_tags(&format!("{{{{ '}}}}' {chain} }}}}")).is_err(),
            "a bracket in a string ends no tag"
        );
        assert!(check_tags(&format!("{{{{ {chain}")).is_err());
        assert_eq!(check_tags("{"), Ok(()));
        assert_eq!(check_tags("{{ '"), Ok(()));
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(on_own_stack(1 << 20, || 7), Ok(7));
        let result: Result<(), _> = on_own_stack(1 << 20, || panic!("as the test wants"));
        assert_eq!(result, Err("the template engine panicked".to_owned()));
    }
}
