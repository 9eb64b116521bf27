//! One object of a QEMU command line, and where such objects stand in it.
//!
//! QEMU takes an object as `key=value,...`, in which `,,` is a comma and the first value may lack its
//! key, or as JSON, as libvirt writes it.

use std::fmt;
use std::ops::Range;

use prezero::Size;
use serde_json::Map;

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Object(Form);

#[derive(Clone, PartialEq, Debug)]
enum Form {
    Keys(Vec<(String, String)>),
    Json(Map<String, serde_json::Value>),
}

/// What a property is set to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// On or off.
    Bool(bool),
    /// A number, also of bytes.
    Number(u64),
    /// Anything else.
    Text(String),
}

impl Object {
    /// Reads it; `None`: it is none.
    pub fn parse(word: &str) -> Option<Object> {
        if word.starts_with('{') {
            return serde_json::from_str(word).ok().map(|map| Object(Form::Json(map)));
        }
        let mut keys = vec![];
        for (at, part) in parts(word).into_iter().enumerate() {
            match part.split_once('=') {
                Some((key, value)) => keys.push((key.to_owned(), value.to_owned())),
                None if at == 0 => keys.push(("qom-type".to_owned(), part)),
                None => return None,
            }
        }
        Some(Object(Form::Keys(keys)))
    }

    /// Its type.
    pub fn kind(&self) -> Option<String> {
        self.get("qom-type")
    }

    /// A property as text: of several of one key the last, which holds.
    pub fn get(&self, key: &str) -> Option<String> {
        match &self.0 {
            Form::Keys(keys) => {
                keys.iter().rev().find(|(each, _)| each == key).map(|(_, value)| value.clone())
            }
            Form::Json(map) => map.get(key).map(|value| match value {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            }),
        }
    }

    /// All values of a list: of `key=value,...` each of that key, or `key.0=value`.
    pub fn list(&self, key: &str) -> Vec<String> {
        match &self.0 {
            Form::Keys(keys) => {
                let is_of_it = |each: &str| {
                    each.strip_prefix(key)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                let of_it = keys.iter().filter(|(each, _)| is_of_it(each));
                of_it.map(|(_, value)| value.clone()).collect()
            }
            Form::Json(map) => match map.get(key) {
                Some(serde_json::Value::Array(all)) => {
                    all.iter().map(ToString::to_string).collect()
                }
                Some(other) => vec![other.to_string()],
                None => vec![],
            },
        }
    }

    /// Whether a property is on; `None`: it is not given.
    pub fn is_on(&self, key: &str) -> Option<bool> {
        self.get(key).map(|value| ["on", "yes", "true", "y"].contains(&&*value))
    }

    /// A property that is a number of bytes.
    pub fn bytes(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse::<Size>().ok().map(|size| size.0 as u64)
    }

    /// Sets a property, in the place where it was.
    pub fn set(&mut self, key: &str, value: Value) {
        match &mut self.0 {
            Form::Keys(keys) => {
                let value = match value {
                    Value::Bool(true) => "on".into(),
                    Value::Bool(false) => "off".into(),
                    Value::Number(number) => number.to_string(),
                    Value::Text(text) => text,
                };
                match keys.iter().position(|(each, _)| each == key) {
                    Some(at) => {
                        keys[at].1 = value;
                        let mut behind = 0;
                        keys.retain(|(each, _)| {
                            behind += 1;
                            each != key || behind == at + 1
                        });
                    }
                    None => keys.push((key.to_owned(), value)),
                }
            }
            Form::Json(map) => {
                let value = match value {
                    Value::Bool(on) => on.into(),
                    Value::Number(number) => number.into(),
                    Value::Text(text) => text.into(),
                };
                map.insert(key.to_owned(), value);
            }
        }
    }

    /// Takes a property away.
    pub fn remove(&mut self, key: &str) {
        match &mut self.0 {
            Form::Keys(keys) => keys.retain(|(each, _)| each != key),
            Form::Json(map) => {
                map.remove(key);
            }
        }
    }

    /// Whether it is written as JSON.
    pub fn is_json(&self) -> bool {
        matches!(self.0, Form::Json(_))
    }
}

/// As QEMU reads it.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Keys(keys) => {
                for (at, (key, value)) in keys.iter().enumerate() {
                    let value = value.replace(',', ",,");
                    match (at, &**key) {
                        (0, "qom-type") => f.write_str(&value)?,
                        (0, _) => write!(f, "{key}={value}")?,
                        _ => write!(f, ",{key}={value}")?,
                    }
                }
                Ok(())
            }
            Form::Json(map) => f.write_str(&serde_json::Value::Object(map.clone()).to_string()),
        }
    }
}

/// The parts between commas, of which two in a row are one of the part.
fn parts(word: &str) -> Vec<String> {
    let (mut all, mut characters) = (vec![String::new()], word.chars().peekable());
    while let Some(character) = characters.next() {
        let last = all.last_mut().expect("begins with one");
        if character != ',' {
            last.push(character);
        } else if characters.next_if_eq(&',').is_some() {
            last.push(',');
        } else {
            all.push(String::new());
        }
    }
    all
}

/// An object, and where it stands: in this argument, there.
#[derive(Clone, PartialEq, Debug)]
pub struct Mention {
    /// The argument's number.
    pub argument: usize,
    /// All of the argument, or a word of it: `sh -c 'qemu-system-x86_64 -object ...'`.
    pub place: Range<usize>,
    /// What stands there.
    pub object: Object,
}

/// The memory objects in these arguments.
pub fn mentions(arguments: &[&str]) -> Vec<Mention> {
    let mut all = vec![];
    for (number, argument) in arguments.iter().enumerate() {
        let mut add = |place: Range<usize>| {
            let object = Object::parse(&argument[place.clone()])?;
            let is_memory = object.kind()?.starts_with("memory-backend-");
            is_memory.then(|| all.push(Mention { argument: number, place, object }))
        };
        if add(0..argument.len()).is_none() {
            words(argument).into_iter().for_each(|place| {
                add(place);
            });
        }
    }
    all
}

/// The words of a shell's command.
fn words(text: &str) -> Vec<Range<usize>> {
    let ends = |character: char| character.is_whitespace() || ['"', '\'', ';'].contains(&character);
    let (mut all, mut from) = (vec![], 0);
    for (at, mark) in text.match_indices(ends).chain([(text.len(), "")]) {
        all.push(from..at);
        from = at + mark.len();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_and_written_as_qemu_does() {
        for word in [
            "memory-backend-file,id=m,size=4G,mem-path=/a,,b,share=on",
            r#"{"id":"m","qom-type":"memory-backend-memfd","share":true,"size":1}"#,
        ] {
            assert_eq!(Object::parse(word).unwrap().to_string(), word);
        }
        let object =
            Object::parse("memory-backend-file,mem-path=/a,,b,share=on,share=off").unwrap();
        assert_eq!(object.kind().as_deref(), Some("memory-backend-file"));
        assert_eq!(object.get("mem-path").as_deref(), Some("/a,b"));
        assert_eq!(object.is_on("share"), Some(false), "of two the last holds");
        for word in ["memory-backend-ram,prealloc", "{lease}", "{\"a\":", "[1]x,y"] {
            assert_eq!(Object::parse(word), None, "{word}");
        }
    }

    #[test]
    fn properties_are_set_once_and_taken_away() {
        let mut object = Object::parse("memory-backend-file,share=off,id=m,share=on").unwrap();
        object.set("share", Value::Bool(true));
        object.set("size", Value::Number(7));
        object.remove("id");
        assert_eq!(object.to_string(), "memory-backend-file,share=on,size=7");
    }

    #[test]
    fn lists_and_sizes_have_several_spellings() {
        let object = |word| Object::parse(word).unwrap();
        for (word, nodes) in [
            ("m,host-nodes=0", &["0"][..]),
            ("m,host-nodes=0,host-nodes=1-2", &["0", "1-2"]),
            ("m,host-nodes.0=3", &["3"]),
            (r#"{"host-nodes":[0,1]}"#, &["0", "1"]),
            ("m", &[]),
        ] {
            assert_eq!(object(word).list("host-nodes"), nodes, "{word}");
        }
        for (word, bytes) in [
            ("m,size=4G", Some(4 << 30)),
            ("m,size=1048576", Some(1 << 20)),
            (r#"{"size":4096}"#, Some(4096)),
            ("m,size=?", None),
            ("m", None),
        ] {
            assert_eq!(object(word).bytes("size"), bytes, "{word}");
        }
    }

    #[test]
    fn objects_are_found_alone_and_in_a_shells_command() {
        let script =
            "exec qemu-system-x86_64 -object 'memory-backend-file,id=m,mem-path={lease}' -S; true";
        let found = mentions(&[
            "-object",
            "memory-backend-ram,id=a",
            "-c",
            script,
            "-object",
            "rng-random,id=r",
        ]);
        let told: Vec<_> =
            found.iter().map(|it| (it.argument, it.object.get("id").unwrap())).collect();
        assert_eq!(told, [(1, "a".into()), (3, "m".into())]);
        assert_eq!(&script[found[1].place.clone()], "memory-backend-file,id=m,mem-path={lease}");
        assert_eq!(mentions(&["{lease}", "-m", "4G", "{\"qom-type\":1}"]), []);
    }
}
