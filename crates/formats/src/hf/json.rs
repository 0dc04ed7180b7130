//! A JSON object in bounded memory: what a configuration needs, and nothing of what it does not.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// Keys of the outermost object beyond which a text is no configuration.
const KEYS: usize = 1024;
/// Keys of an inner object, and elements of an array, that are kept; a longer one is passed over as
/// [`Json::Other`] (label tables of classifiers have thousands).
const INNER: usize = 1024;
/// Levels of objects that are kept: the configuration and objects in it.
const DEPTH: usize = 2;

/// A JSON value, as far as a configuration goes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Integer(u64),
    /// A number that is negative or has a fraction.
    Number(f64),
    String(String),
    /// An array of strings only.
    Strings(Vec<String>),
    Object(Vec<(String, Json)>),
    /// Anything else, by what it is.
    Other(&'static str),
}

impl Json {
    /// Parses a text whose outermost value is an object. A key that occurs twice is an error.
    pub(super) fn parse_object(text: &str) -> Result<Vec<(String, Json)>, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = Level(0).deserialize(&mut deserializer)?;
        deserializer.end()?;
        match value {
            Json::Object(pairs) => Ok(pairs),
            _ => Err(serde_json::Error::custom(
                "it is not an object of at most 1024 keys",
            )),
        }
    }

    /// What it is, for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::String(value) => crate::error::quote(value),
            Self::Strings(values) => format!("an array of {} strings", values.len()),
            Self::Object(_) => "an object".to_owned(),
            Self::Other(what) => (*what).to_owned(),
        }
    }
}

/// Reads a value inside so many objects.
#[derive(Clone, Copy)]
struct Level(usize);

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Json;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Integer(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value as f64)) // only negative ones come here
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut strings = Vec::new();
        // Objects inside an array are never looked at: level `DEPTH` keeps nothing.
        while let Some(value) = seq.next_element_seed(Level(DEPTH))? {
            match value {
                Json::String(text) if strings.len() < INNER => strings.push(text),
                _ => {
                    while seq.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(Json::Other("an array"));
                }
            }
        }
        Ok(Json::Strings(strings))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        if self.0 >= DEPTH {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Json::Other("an object"));
        }
        let limit = if self.0 == 0 { KEYS } else { INNER };
        let mut pairs: Vec<(String, Json)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if pairs.len() >= limit {
                map.next_value::<IgnoredAny>()?;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(Json::Other("a large object"));
            }
            if pairs.iter().any(|(other, _)| *other == key) {
                let key = crate::error::quote(&key);
                return Err(A::Error::custom(format_args!("the key {key} occurs twice")));
            }
            pairs.push((key, map.next_value_seed(Level(self.0 + 1))?));
        }
        Ok(Json::Object(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_kept_and_the_rest_passed_over() {
        let text = r#"{"a": 1, "b": -2, "c": 0.5, "d": "x", "e": ["p", "q"], "f": null, "g": true,
            "h": {"i": 7, "j": {"k": 1}}, "l": [1, "p"], "m": [[["deep"]]]}"#;
        let pairs = Json::parse_object(text).unwrap();
        let strings = Json::Strings(vec!["p".into(), "q".into()]);
        let inner = vec![
            ("i".into(), Json::Integer(7)),
            ("j".into(), Json::Other("an object")),
        ];
        assert_eq!(
            pairs,
            [
                ("a".into(), Json::Integer(1)),
                ("b".into(), Json::Number(-2.0)),
                ("c".into(), Json::Number(0.5)),
                ("d".into(), Json::String("x".into())),
                ("e".into(), strings),
                ("f".into(), Json::Null),
                ("g".into(), Json::Bool(true)),
                ("h".into(), Json::Object(inner)),
                ("l".into(), Json::Other("an array")),
                ("m".into(), Json::Other("an array")),
            ]
        );
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for text in [
            "",
            "[]",
            "1",
            "{\"a\": 1, \"a\": 2}",
            "{\"a\": 1} x",
            "{\"a\":",
        ] {
            Json::parse_object(text).expect_err(text);
        }
        let deep = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        Json::parse_object(&deep).expect_err("a stack cannot hold this");
        let wide: Vec<String> = (0..2000).map(|i| format!("\"{i}\":0")).collect();
        Json::parse_object(&format!("{{{}}}", wide.join(","))).expect_err("no configuration");
    }
}
