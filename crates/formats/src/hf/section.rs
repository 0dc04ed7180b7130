//! Typed access to the fields of one object of a configuration.

use super::json::Json;
use crate::FormatError;
use crate::error::quote;

/// What to do when a hyperparameter is missing.
const REFETCH: &str = "fetch config.json again from where the model came from";

/// An object of the configuration, with the words to name its fields.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    pub(super) file: &'a str,
    /// The object's own name with a dot, or nothing for the root.
    pub(super) prefix: &'a str,
    pub(super) pairs: &'a [(String, Json)],
}

impl<'a> Section<'a> {
    /// The value of `key`; null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&'a Json> {
        let (_, value) = self.pairs.iter().find(|(name, _)| name == key)?;
        (*value != Json::Null).then_some(value)
    }

    pub(super) fn field(&self, key: &str) -> String {
        quote(&format!("{}{key}", self.prefix))
    }

    pub(super) fn wrong(&self, key: &str, found: &Json, expected: &'static str) -> FormatError {
        FormatError::WrongType {
            file: self.file.to_owned(),
            field: self.field(key),
            found: found.describe(),
            expected,
        }
    }

    pub(super) fn missing(&self, key: &str) -> FormatError {
        FormatError::missing(self.file, self.field(key), REFETCH)
    }

    pub(super) fn unsupported(
        &self,
        key: &str,
        found: impl ToString,
        supported: impl ToString,
    ) -> FormatError {
        FormatError::unsupported(self.file, self.field(key), found, supported)
    }

    pub(super) fn count(&self, key: &str) -> Result<Option<usize>, FormatError> {
        self.typed(key, "a count", |value| match value {
            Json::Integer(value) => usize::try_from(*value).ok(),
            _ => None,
        })
    }

    pub(super) fn needed_count(&self, key: &str) -> Result<usize, FormatError> {
        self.count(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, FormatError> {
        self.typed(key, "a number", |value| match value {
            Json::Integer(value) => Some(*value as f64),
            Json::Number(value) => Some(*value),
            _ => None,
        })
    }

    pub(super) fn needed_f32(&self, key: &str) -> Result<f32, FormatError> {
        self.number(key)?
            .map(|value| value as f32)
            .ok_or_else(|| self.missing(key))
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, FormatError> {
        self.typed(key, "true or false", |value| match value {
            Json::Bool(value) => Some(*value),
            _ => None,
        })
    }

    pub(super) fn str(&self, key: &str) -> Result<Option<&'a str>, FormatError> {
        self.typed(key, "a string", |value| match value {
            Json::String(value) => Some(value.as_str()),
            _ => None,
        })
    }

    pub(super) fn strings(&self, key: &str) -> Result<Option<&'a [String]>, FormatError> {
        self.typed(key, "an array of strings", |value| match value {
            Json::Strings(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    pub(super) fn object(
        &self,
        key: &str,
        prefix: &'a str,
    ) -> Result<Option<Section<'a>>, FormatError> {
        self.typed(key, "an object", |value| match value {
            Json::Object(pairs) => Some(Section {
                file: self.file,
                prefix,
                pairs,
            }),
            _ => None,
        })
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Json) -> Option<T>,
    ) -> Result<Option<T>, FormatError>
    where
        Self: 'a,
    {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        convert(value)
            .map(Some)
            .ok_or_else(|| self.wrong(key, value, expected))
    }
}
