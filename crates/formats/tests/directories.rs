//! Models in several files, and directories of models.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};

use common::{hf_config, safetensors, small_llama};
use foredraft_formats::Checkpoint;
use foredraft_formats::write::GgufWriter;
use foredraft_quant::WeightType;

fn message(path: &Path) -> String {
    Checkpoint::open(path)
        .expect_err("must be refused")
        .to_string()
}

/// Writes a model of one tensor per file in so many parts; `edit` changes a part before it is written.
fn write_splits(directory: &Path, parts: u16, edit: impl Fn(u16, &mut GgufWriter<'_>)) -> PathBuf {
    let path = |part: u16| directory.join(format!("m-{:05}-of-{parts:05}.gguf", part + 1));
    for part in 0..parts {
        let mut writer = if part == 0 {
            small_llama()
        } else {
            GgufWriter::new()
        };
        writer
            .u16("split.no", part)
            .u16("split.count", parts)
            .i32("split.tensors.count", parts.into());
        if part > 0 {
            writer.tensor(
                &format!("t{part}"),
                WeightType::F32,
                &[2],
                vec![part as u8; 8],
            );
        }
        edit(part, &mut writer);
        std::fs::write(path(part), writer.finish().unwrap()).unwrap();
    }
    path(0)
}

#[test]
fn a_split_model_opens_by_its_first_part() {
    let directory = tempfile::tempdir().unwrap();
    let first = write_splits(directory.path(), 3, |_, _| {});
    for path in [first.as_path(), directory.path()] {
        let model = Checkpoint::open(path).unwrap();
        assert_eq!(model.tensors().count(), 3);
        assert_eq!(model.tensor("t1").unwrap().data, [1; 8]);
        assert_eq!(model.tensor("t2").unwrap().data, [2; 8]);
        assert_eq!(model.config().unwrap().layers, 2);
    }
    let second = message(&directory.path().join("m-00002-of-00003.gguf"));
    assert!(
        second.contains("part 2 of a model in 3 files; give the first part"),
        "{second}"
    );
    std::fs::remove_file(directory.path().join("m-00003-of-00003.gguf")).unwrap();
    let missing = message(&first);
    assert!(
        missing.contains("the part `m-00003-of-00003.gguf` is missing; fetch all parts"),
        "{missing}"
    );
    let renamed = directory.path().join("renamed.gguf");
    std::fs::rename(&first, &renamed).unwrap();
    assert!(
        message(&renamed).contains("does not end in -00001-of-00003.gguf"),
        "{}",
        message(&renamed)
    );
    let in_memory = Checkpoint::from_bytes(std::fs::read(renamed).unwrap())
        .unwrap_err()
        .to_string();
    assert!(in_memory.contains("one of 3 files"), "{in_memory}");
}

#[test]
fn parts_that_contradict_each_other_are_refused() {
    let refusal = |edit: fn(u16, &mut GgufWriter<'_>)| {
        let directory = tempfile::tempdir().unwrap();
        message(&write_splits(directory.path(), 3, edit))
    };
    let swapped = refusal(|part, w| {
        w.u16("split.no", if part == 1 { 2 } else { part });
    });
    assert!(
        swapped.contains("00002-of-00003.gguf: `split.no`: it says 2"),
        "{swapped}"
    );
    let count = refusal(|_, w| {
        w.i32("split.tensors.count", 4);
    });
    assert!(count.contains("it says 4, the 3 files have 3"), "{count}");
    let twice = refusal(|part, w| {
        if part > 0 {
            w.tensor("token_embd.weight", WeightType::F32, &[1], vec![0; 4]);
        }
        w.i32("split.tensors.count", 5);
    });
    assert!(
        twice.contains("tensor `token_embd.weight`: it is listed twice"),
        "{twice}"
    );
    let many = refusal(|_, w| {
        w.u16("split.count", 65_535);
    });
    assert!(
        many.contains("`split.count` is 65535, the limit is 1024"),
        "{many}"
    );
}

/// A directory of a small llama with these files of one F32 tensor of two elements each.
fn hf_directory(files: &[(&str, &str)], index: Option<&str>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("config.json"), hf_config("")).unwrap();
    for (file, tensor) in files {
        let json =
            format!(r#"{{"{tensor}": {{"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}}}"#);
        std::fs::write(directory.path().join(file), safetensors(&json, 8)).unwrap();
    }
    if let Some(map) = index {
        let json = format!(r#"{{"metadata": {{"total_size": 16}}, "weight_map": {{{map}}}}}"#);
        std::fs::write(directory.path().join("model.safetensors.index.json"), json).unwrap();
    }
    directory
}

#[test]
fn a_sharded_model_opens_by_its_index() {
    let files = [
        ("model-00001-of-00002.safetensors", "model.norm.weight"),
        (
            "model-00002-of-00002.safetensors",
            "model.layers.1.mlp.up_proj.weight",
        ),
    ];
    let map = r#""model.norm.weight": "model-00001-of-00002.safetensors",
                 "model.layers.1.mlp.up_proj.weight": "model-00002-of-00002.safetensors""#;
    let directory = hf_directory(&files, Some(map));
    let model = Checkpoint::open(directory.path()).unwrap();
    let names: Vec<&str> = model.tensors().map(|tensor| tensor.name).collect();
    assert_eq!(names, ["output_norm.weight", "blk.1.ffn_up.weight"]);
    let size = |(file, _): &(&str, &str)| directory.path().join(file).metadata().unwrap().len();
    assert_eq!(model.file_bytes(), files.iter().map(size).sum::<u64>());

    let without_index = message(hf_directory(&files, None).path());
    assert!(
        without_index.contains("model.safetensors.index.json` is missing"),
        "{without_index}"
    );
    let incomplete = message(hf_directory(&files[..1], Some(map)).path());
    assert!(
        incomplete.contains("the shard `model-00002-of-00002.safetensors` is missing"),
        "{incomplete}"
    );
    let swapped = map.replace("00002.safetensors\",", "00003.safetensors\",");
    assert!(message(hf_directory(&files, Some(&swapped)).path()).contains("is missing"));
    let elsewhere = r#""model.norm.weight": "model-00002-of-00002.safetensors""#;
    let wrong = message(hf_directory(&files, Some(elsewhere)).path());
    assert!(
        wrong.contains("tensor `model.norm.weight`: the index says"),
        "{wrong}"
    );
}

#[test]
fn an_index_cannot_point_outside_its_directory() {
    for name in ["../secret.safetensors", "/etc/passwd", "a\\\\b", "..", ""] {
        let map = format!(r#""model.norm.weight": "{name}""#);
        let refused =
            message(hf_directory(&[("x.safetensors", "model.norm.weight")], Some(&map)).path());
        assert!(refused.contains("it is not a plain file name"), "{refused}");
    }
    for map in [r#""a": 1"#, r#""a": ["x"]"#, r#""a""#] {
        let refused = message(hf_directory(&[("x.safetensors", "w")], Some(map)).path());
        assert!(refused.contains("index.json: the index"), "{refused}");
    }
}

#[test]
fn directories_that_are_no_model_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert!(message(path).contains("a directory without a model"));
    assert!(message(&path.join("absent")).contains("absent: cannot open the model"));
    std::fs::write(path.join("model.safetensors"), safetensors("{}", 0)).unwrap();
    assert!(message(path).contains("without config.json"));
    assert!(
        message(&path.join("model.safetensors"))
            .contains("give the directory that holds this file")
    );
    std::fs::remove_file(path.join("model.safetensors")).unwrap();
    std::fs::write(path.join("config.json"), hf_config("")).unwrap();
    assert!(message(path).contains("with config.json but without safetensors"));
    std::fs::write(path.join("pytorch_model.bin"), b"").unwrap();
    assert!(message(path).contains("pickles"));
    std::fs::write(path.join("a.gguf"), small_llama().finish().unwrap()).unwrap();
    assert_eq!(Checkpoint::open(path).unwrap().format_name(), "GGUF v3");
    std::fs::write(path.join("b.gguf"), b"").unwrap();
    assert!(message(path).contains("several GGUF models, among them `a.gguf` and `b.gguf`"));
    assert!(message(&path.join("b.gguf")).contains("the GGUF magic"));
    std::fs::write(path.join("model.safetensors"), safetensors("{}", 0)).unwrap();
    std::fs::write(path.join("config.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(message(path).contains("the size of the file is 1048577, the limit is 1048576"));
    std::fs::write(path.join("config.json"), b"{\"a\": \xff}").unwrap();
    assert!(message(path).contains("config.json: the text"));
}
