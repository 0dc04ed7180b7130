//! Any text as a chat template: it ends, within bounds, whatever it says.
#![no_main]

use foredraft_text::{ChatRequest, ChatTemplate, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    let template = ChatTemplate::new(source.to_owned(), None, "<s>".into(), "</s>".into());
    let request = ChatRequest::new(vec![Message::system("Be brief."), Message::user("Hi \u{1f999}")]);
    let _ = template.render(&request);
});
