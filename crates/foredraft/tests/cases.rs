//! `docs/cases.md` stays true: every test that it names exists where its command looks for it.

use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A test that the table names, with the command beside it.
#[derive(Debug)]
struct Named<'t> {
    /// `crate::module::test`.
    name: &'t str,
    command: &'t str,
}

/// What stands between backquotes in a cell.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The rows of all tables but their heads: case, tests, commands, planted fault.
fn rows(text: &str) -> Vec<[&str; 4]> {
    let lines = text.lines().filter(|line| line.starts_with("| "));
    let cells = lines.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        <[&str; 4]>::try_from(cells).unwrap_or_else(|_| panic!("not four cells: {line}"))
    });
    cells
        .filter(|[case, ..]| *case != "case" && !case.starts_with("---"))
        .collect()
}

/// The file of a module below `root`, whose own file is `root_file`; the tests may be in a module at its end.
fn source(root: &Path, root_file: &Path, modules: &[&str]) -> Option<PathBuf> {
    let inline = modules.len().saturating_sub(1);
    (inline..=modules.len()).rev().find_map(|count| {
        let path: PathBuf = modules[..count].iter().collect();
        let candidates = match count {
            0 => vec![root_file.to_owned()],
            _ => vec![
                root.join(&path).with_extension("rs"),
                root.join(&path).join("mod.rs"),
            ],
        };
        candidates.into_iter().find(|file| file.is_file())
    })
}

/// Whether a source has a test function of this name.
fn has_test(source: &str, function: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_it = |line: &str| line.contains(&format!("fn {function}("));
    let places = (0..lines.len()).filter(|&place| is_it(lines[place]));
    places.into_iter().any(|place| {
        let above = lines[..place].iter().rev();
        let mut attributes = above.take_while(|line| line.starts_with(['#', '/']));
        attributes.any(|line| *line == "#[test]")
    })
}

/// Why a name and its command are not those of a test.
fn fault(named: &Named<'_>) -> Option<String> {
    let words: Vec<&str> = named.command.split(' ').collect();
    let (package, target, filter) = match words[..] {
        ["cargo", "test", "-p", package, "--lib", filter] => (package, "lib.rs", filter),
        ["cargo", "test", "-p", package, "--bin", "foredraft", filter] => {
            (package, "main.rs", filter)
        }
        ["cargo", "test", "-p", package, "--test", target, filter] => (package, target, filter),
        _ => return Some("the command has another form".to_owned()),
    };
    let folder = package.strip_prefix("foredraft-").unwrap_or(package);
    let folder = repository().join("crates").join(folder);
    let is_unit = target.ends_with(".rs");
    let (root, root_file, prefix) = match is_unit {
        true => (folder.join("src"), folder.join("src").join(target), None),
        false => {
            let tests = folder.join("tests");
            let file = tests.join(target).with_extension("rs");
            let main = tests.join(target).join("main.rs");
            let root_file = if file.is_file() { file } else { main };
            (tests.join(target), root_file, Some(target))
        }
    };
    let crate_name = package.replace('-', "_");
    let expected: Vec<&str> = [crate_name.as_str()]
        .into_iter()
        .chain(prefix)
        .chain(filter.split("::"))
        .collect();
    if named.name != expected.join("::") {
        return Some(format!("the command runs {}", expected.join("::")));
    }
    let mut modules: Vec<&str> = filter.split("::").collect();
    let function = modules.pop()?;
    let Some(file) = source(&root, &root_file, &modules) else {
        return Some("there is no such module".to_owned());
    };
    let text = std::fs::read_to_string(&file).expect("a source");
    (!has_test(&text, function)).then(|| format!("{} has no such test", file.display()))
}

#[test]
fn every_test_that_the_table_names_exists() {
    let text = std::fs::read_to_string(repository().join("docs/cases.md")).expect("the table");
    let (mut faults, mut tests) = (Vec::new(), 0);
    for [case, names, commands, planted] in rows(&text) {
        let names: Vec<&str> = quoted(names).collect();
        let commands: Vec<&str> = quoted(commands).collect();
        if names.is_empty() && commands.is_empty() && planted == "not yet" {
            continue;
        }
        if names.is_empty() || names.len() != commands.len() || planted == "not yet" {
            faults.push(format!("{case}: {names:?} and {commands:?}"));
        }
        for (name, command) in names.into_iter().zip(commands) {
            tests += 1;
            let named = Named { name, command };
            if let Some(fault) = fault(&named) {
                faults.push(format!("{named:?}: {fault}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(tests > 40, "{tests} tests found: is this the table?");
}

/// The check itself finds what is wrong.
#[test]
fn what_does_not_exist_is_found() {
    let is_found = |name, command| fault(&Named { name, command }).is_some();
    let this = "foredraft::cases::what_does_not_exist_is_found";
    let command = "cargo test -p foredraft --test cases what_does_not_exist_is_found";
    assert!(!is_found(this, command));
    assert!(is_found("foredraft::cases::another", command));
    for (name, command) in [
        // No test, though a function.
        (
            "foredraft::cases::has_test",
            "cargo test -p foredraft --test cases has_test",
        ),
        (
            "foredraft::cases::no_such_test",
            "cargo test -p foredraft --test cases no_such_test",
        ),
        (
            "foredraft::no_file::test",
            "cargo test -p foredraft --test no_file test",
        ),
        ("foredraft::cases::x", "cargo test x"),
    ] {
        assert!(is_found(name, command), "{name}");
    }
    let of_module = "foredraft_speculate::tree::tests::a_token_sampled_twice_is_two_nodes";
    let command =
        "cargo test -p foredraft-speculate --lib tree::tests::a_token_sampled_twice_is_two_nodes";
    assert!(!is_found(of_module, command));
}
