//! No parser claims more than a small multiple of the file's size, whatever the file says.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // counting what is allocated needs an allocator; see `Counting`

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{Raw, hf_config, safetensors, stories_gguf};
use foredraft_formats::{Checkpoint, ModelConfig};

/// The system's allocator, counting live bytes and their peak.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator; only sizes are noted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(
            LIVE.fetch_add(layout.size(), Relaxed) + layout.size(),
            Relaxed,
        );
        // SAFETY: the caller's promise about `layout` is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from `System.alloc` with this `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that `work` had allocated at one time, beyond what there was.
fn peak<T>(work: impl FnOnce() -> T) -> usize {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    let peak = PEAK.load(Relaxed) - before;
    drop(result);
    peak
}

/// The files that make the most of each byte. One test, because the counter is the process's.
#[test]
fn memory_stays_within_a_small_multiple_of_the_file() {
    // 50,000 pairs of a few bytes, so that the index of keys is as large as it gets.
    let many_keys = (0..50_000).fold(Raw::gguf(0, 50_000), |file, index| {
        file.string(&format!("{index:x}")).u32(0).bytes(&[1])
    });
    let many_tensors = (0..50_000).fold(Raw::gguf(50_000, 0), |file, index| {
        file.tensor(&format!("{index:x}"), &[1], 0, 32 * index)
    });
    let many_tensors = many_tensors.data(32 * 50_000);
    let many_strings = Raw::gguf(0, 1)
        .string("a")
        .u32(9)
        .u32(8)
        .u64(100_000)
        .bytes(&[0; 800_000]);
    let claims_much = Raw::gguf(1 << 17, 1 << 15).bytes(&[0; 1 << 20]);
    let files = [
        ("stories260K", std::fs::read(stories_gguf()).unwrap()),
        ("many keys", many_keys.0),
        ("many tensors", many_tensors.0),
        ("many strings", many_strings.0),
        ("claims much", claims_much.0),
    ];
    for (name, bytes) in files {
        let size = bytes.len();
        let peak = peak(|| {
            let model = Checkpoint::from_bytes(bytes)?;
            let strings = model
                .metadata()
                .map(|metadata| metadata.str_array("a").is_ok());
            Ok::<_, foredraft_formats::FormatError>((strings, model))
        });
        eprintln!("{name}: {peak} bytes for {size}");
        assert!(
            peak <= 8 * size,
            "{name}: {peak} bytes for a file of {size}"
        );
    }

    let lines: Vec<String> = (0..20_000)
        .map(|i| {
            format!(
                r#""{i:x}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}}"#,
                i + 1
            )
        })
        .collect();
    let table = safetensors(&format!("{{{}}}", lines.join(",")), 20_000);
    let zeros = format!(
        r#"{{"w":{{"dtype":"U8","shape":[{}1],"data_offsets":[0,1]}}}}"#,
        "0,".repeat(1 << 20)
    );
    let zeros = safetensors(&zeros, 1);
    let config = hf_config("");
    for (name, bytes) in [("many tensors", table), ("a long shape", zeros)] {
        let size = bytes.len();
        let peak = peak(|| Checkpoint::from_safetensors(&config, vec![bytes]));
        eprintln!("{name}: {peak} bytes for {size}");
        assert!(
            peak <= 8 * size,
            "safetensors with {name}: {peak} bytes for a file of {size}"
        );
    }

    for (name, text) in [
        (
            "numbers",
            format!(r#"{{"a": [{}0]}}"#, "0,".repeat(500_000)),
        ),
        (
            "objects",
            format!(r#"{{"a": [{}0]}}"#, "{},".repeat(300_000)),
        ),
        (
            "strings",
            format!(r#"{{"a": [{}""]}}"#, "\"\",".repeat(300_000)),
        ),
        (
            "keys",
            format!(
                "{{\"a\":{{{}\"\":0}}}}",
                (0..100_000)
                    .map(|i| format!("\"{i}\":0,"))
                    .collect::<String>()
            ),
        ),
        ("depth", "{\"a\":".repeat(100_000)),
    ] {
        let size = text.len();
        let peak = peak(|| ModelConfig::from_hf_json(&text));
        eprintln!("{name}: {peak} bytes for {size}");
        assert!(
            peak <= 8 * size,
            "config.json with {name}: {peak} bytes for {size}"
        );
    }
}
