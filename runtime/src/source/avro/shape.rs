//! Walks over the values of an Avro block, to check that the block holds as many rows as it states,
//! and that these rows take all of its bytes.
//!
//! Without the check, the decoder of `arrow-avro` waits for ever at the end of a block with more
//! bytes than its rows take. The encoding is that of the Avro specification 1.11, "Binary
//! Encoding".

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Maximum depth to which a schema's types, or the values of a recursive type, may be nested.
/// Deeper nesting is an error.
const MAX_DEPTH: usize = 64;

/// Maximum number of types in a schema; more types are an error. A named type counts once per
/// reference, because `arrow-avro` creates a field for each reference.
const MAX_TYPES: u64 = 1 << 20;

/// Maximum number of array or map items in a block that take no bytes (mostly nulls); more items
/// are an error. A stated count alone creates such items, so the size of the block does not bound
/// their number.
const MAX_EMPTY_ITEMS: u64 = 1 << 20;

/// The encoding of the rows of an Avro file, derived from its schema.
#[derive(Debug)]
pub(super) struct RowShape {
    types: Vec<Type>,
    row: usize,
}

/// A type of the schema. Nested types are stored as indices into [`RowShape::types`].
#[derive(Debug, Clone)]
enum Type {
    Null,
    Boolean,
    /// An integer of any width, or the index of an enum's symbol.
    Integer,
    Fixed(usize),
    Bytes,
    Array(usize),
    Map(usize),
    Union(Vec<usize>),
    Record(Vec<usize>),
}

impl RowShape {
    /// Parses `schema`, the JSON schema in a file's header.
    pub(super) fn parse(schema: &[u8]) -> Result<Self, String> {
        let schema: Value = serde_json::from_slice(schema)
            .map_err(|e| format!("its schema is not sound JSON: {e}"))?;
        let mut parser = Parser::default();
        let row = parser.parse(&schema, "", 0)?;
        Ok(Self {
            types: parser.types,
            row,
        })
    }

    /// Checks that `data` holds `rows` rows and nothing else.
    pub(super) fn check(&self, data: &[u8], rows: u64) -> Result<(), String> {
        if rows > data.len() as u64 {
            return Err(format!("it states {rows} rows in {} bytes", data.len()));
        }
        let mut walk = ShapeWalk {
            types: &self.types,
            rest: data,
            empty_items: 0,
        };
        for row in 0..rows {
            walk.value(self.row, 0)
                .map_err(|cause| format!("row {row} of the {rows} in it: {cause}"))?;
        }
        if walk.rest.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "{} bytes are left behind the {rows} rows that it states",
                walk.rest.len()
            ))
        }
    }
}

/// Size of a type as a tree, in which each reference to a named type is replaced by a copy of that
/// type.
#[derive(Debug, Clone, Copy)]
struct ShapeTree {
    types: u64,
    levels: usize,
}

#[derive(Debug, Default)]
struct Parser {
    types: Vec<Type>,
    /// Size of the tree of each type in `types`. A record's reference to itself counts as a leaf.
    trees: Vec<ShapeTree>,
    /// Indices of the named types in `types`, by full name.
    names: HashMap<String, usize>,
}

impl Parser {
    fn add(&mut self, found: Type) -> Result<usize, String> {
        let tree = self.tree(&found)?;
        self.types.push(found);
        self.trees.push(tree);
        Ok(self.types.len() - 1)
    }

    /// Sets the named type with the index `id` to `found`. A name gets its index before its
    /// definition is parsed, because a record may contain itself.
    fn complete(&mut self, id: usize, found: Type) -> Result<(), String> {
        self.trees[id] = self.tree(&found)?;
        self.types[id] = found;
        Ok(())
    }

    fn tree(&self, of: &Type) -> Result<ShapeTree, String> {
        let children: &[usize] = match of {
            Type::Array(child) | Type::Map(child) => std::slice::from_ref(child),
            Type::Union(children) | Type::Record(children) => children,
            _ => &[],
        };
        let mut tree = ShapeTree {
            types: 1,
            levels: 0,
        };
        for &child in children {
            let child = self.trees[child];
            tree.types = tree.types.saturating_add(child.types);
            tree.levels = tree.levels.max(child.levels + 1);
        }
        if tree.types > MAX_TYPES {
            return Err(format!(
                "its schema has more than {MAX_TYPES} types, counted wherever they are named"
            ));
        }
        if tree.levels > MAX_DEPTH {
            return Err(too_deep());
        }
        Ok(tree)
    }

    fn parse(&mut self, schema: &Value, namespace: &str, depth: usize) -> Result<usize, String> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        match schema {
            Value::String(name) => self.named(name, namespace),
            Value::Array(branches) => {
                let branches = branches.iter();
                let branches = branches
                    .map(|branch| self.parse(branch, namespace, depth + 1))
                    .collect::<Result<_, _>>()?;
                self.add(Type::Union(branches))
            }
            Value::Object(object) => self.object(object, namespace, depth),
            _ => Err("its schema has a value that is not a type".to_owned()),
        }
    }

    fn named(&mut self, name: &str, namespace: &str) -> Result<usize, String> {
        let primitive = match name {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "int" | "long" => Type::Integer,
            "float" => Type::Fixed(4),
            "double" => Type::Fixed(8),
            "bytes" | "string" => Type::Bytes,
            _ => {
                let full = full_name(name, namespace);
                let found = self.names.get(&full).or_else(|| self.names.get(name));
                return found.copied().ok_or_else(|| {
                    format!("its schema names the type '{name}', which it does not define")
                });
            }
        };
        self.add(primitive)
    }

    fn object(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<usize, String> {
        let part = |name: &str| {
            let missing = || format!("its schema has a type without '{name}'");
            object.get(name).ok_or_else(missing)
        };
        let of = match part("type")? {
            Value::String(of) => of.as_str(),
            other => return self.parse(other, namespace, depth + 1),
        };
        match of {
            "array" => {
                let items = self.parse(part("items")?, namespace, depth + 1)?;
                self.add(Type::Array(items))
            }
            "map" => {
                let values = self.parse(part("values")?, namespace, depth + 1)?;
                self.add(Type::Map(values))
            }
            "record" | "error" => {
                let (id, namespace) = self.define(object, namespace)?;
                let fields = part("fields")?
                    .as_array()
                    .ok_or("its schema has a record without fields")?;
                let mut children = Vec::with_capacity(fields.len());
                for field in fields {
                    let of = field
                        .get("type")
                        .ok_or("its schema has a field without a type")?;
                    children.push(self.parse(of, &namespace, depth + 1)?);
                }
                self.complete(id, Type::Record(children))?;
                Ok(id)
            }
            "enum" => {
                let (id, _) = self.define(object, namespace)?;
                self.complete(id, Type::Integer)?;
                Ok(id)
            }
            "fixed" => {
                let (id, _) = self.define(object, namespace)?;
                let size = part("size")?
                    .as_u64()
                    .and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or("its schema has a fixed type without a size")?;
                self.complete(id, Type::Fixed(size))?;
                Ok(id)
            }
            other => self.named(other, namespace),
        }
    }

    /// Reserves an index for the named type that `object` defines. Returns the index, and the
    /// namespace that applies to names within the definition.
    fn define(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
    ) -> Result<(usize, String), String> {
        let text = |part: &str| object.get(part).and_then(Value::as_str);
        let name = text("name").ok_or("its schema has a type without a name")?;
        let full = full_name(name, text("namespace").unwrap_or(namespace));
        let within = full
            .rsplit_once('.')
            .map_or("", |(within, _)| within)
            .to_owned();
        let id = self.add(Type::Null)?;
        self.names.insert(full, id);
        Ok((id, within))
    }
}

fn too_deep() -> String {
    format!("its schema is nested in more than {MAX_DEPTH} levels")
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}.{name}")
    }
}

/// A walk over the bytes of a block.
struct ShapeWalk<'a> {
    types: &'a [Type],
    rest: &'a [u8],
    empty_items: u64,
}

impl ShapeWalk<'_> {
    fn value(&mut self, of: usize, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("values are nested in more than {MAX_DEPTH} levels"));
        }
        let types = self.types;
        match &types[of] {
            Type::Null => Ok(()),
            Type::Boolean => self.skip(1),
            Type::Integer => self.long().map(drop),
            Type::Fixed(size) => self.skip(*size),
            Type::Bytes => self.bytes(),
            Type::Array(item) => self.items(|walk| walk.value(*item, depth + 1)),
            Type::Map(value) => self.items(|walk| {
                walk.bytes()?;
                walk.value(*value, depth + 1)
            }),
            Type::Union(branches) => {
                let branch = usize::try_from(self.long()?).ok();
                match branch.and_then(|branch| branches.get(branch)) {
                    Some(&branch) => self.value(branch, depth + 1),
                    None => Err("the number of a branch that the union does not have".to_owned()),
                }
            }
            Type::Record(fields) => {
                for &field in fields {
                    self.value(field, depth + 1)?;
                }
                Ok(())
            }
        }
    }

    fn items(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // A negative count is followed by the size of the items in bytes, for readers that
                // skip the items.
                let bytes = self.long()?;
                if bytes < 0 {
                    return Err(format!("an array or map states {bytes} bytes of items"));
                }
            }
            for _ in 0..count.unsigned_abs() {
                let before = self.rest.len();
                item(self)?;
                self.empty_items += u64::from(self.rest.len() == before);
                if self.empty_items > MAX_EMPTY_ITEMS {
                    return Err(format!("more than {MAX_EMPTY_ITEMS} items without bytes"));
                }
            }
        }
    }

    fn bytes(&mut self) -> Result<(), String> {
        let length = self.long()?;
        let length = usize::try_from(length)
            .map_err(|_| format!("a bytes or string value states a length of {length}"))?;
        self.skip(length)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), String> {
        self.rest = self.rest.get(bytes..).ok_or_else(|| {
            format!(
                "a value of {bytes} bytes, but only {} bytes are left",
                self.rest.len()
            )
        })?;
        Ok(())
    }

    /// Reads a zig-zag variable-length integer.
    fn long(&mut self) -> Result<i64, String> {
        let mut value = 0u64;
        for (at, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err("an integer that does not end".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &str, data: &[u8], rows: u64) -> Result<(), String> {
        RowShape::parse(schema.as_bytes())?.check(data, rows)
    }

    const ROW: &str = r#"{"type": "record", "name": "n.r", "fields": [
        {"name": "a", "type": ["null", "long"]},
        {"name": "b", "type": {"type": "array", "items": "string"}},
        {"name": "c", "type": {"type": "fixed", "name": "f", "size": 2}},
        {"name": "d", "type": ["null", "f"]},
        {"name": "e", "type": {"type": "map", "values": "n.f"}},
        {"name": "g", "type": {"type": "enum", "name": "s", "symbols": ["x"]}}]}"#;

    #[test]
    fn rows_take_all_bytes() {
        // The values a: null, b: ["hi"], c: two bytes, d: null, e: {"k": two bytes}, g: the symbol
        // x.
        let row = [0, 2, 4, b'h', b'i', 0, 1, 2, 0, 2, 2, b'k', 3, 4, 0, 0];
        check(ROW, &row, 1).unwrap();
        check(ROW, &[row, row].concat(), 2).unwrap();
        let error = check(ROW, &[row, row].concat(), 1).unwrap_err();
        assert_eq!(error, "16 bytes are left behind the 1 rows that it states");
        let error = check(ROW, &row, 2).unwrap_err();
        assert!(error.starts_with("row 1 of the 2 in it:"), "{error}");
        let error = check(ROW, &row, 17).unwrap_err();
        assert!(error.contains("17 rows in 16 bytes"), "{error}");
        // A row whose array is a block of items with a stated size in bytes.
        let sized = [0, 1, 6, 4, b'h', b'i', 0, 1, 2, 0, 0, 0];
        check(ROW, &sized, 1).unwrap();
        for (at, byte) in [(0, 9), (2, 255), (2, 3), (11, 255)] {
            let mut bytes = sized;
            bytes[at] = byte;
            assert!(check(ROW, &bytes, 1).is_err(), "{at}");
        }
    }

    #[test]
    fn counts_without_bytes_end() {
        let nulls = r#"{"type": "record", "name": "r", "fields": [
            {"name": "a", "type": {"type": "array", "items": "null"}}]}"#;
        check(nulls, &[8, 0], 1).unwrap();
        let endless = [
            0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0,
        ];
        assert!(
            check(nulls, &endless, 1)
                .unwrap_err()
                .contains("items without bytes")
        );
        let list = r#"{"type": "record", "name": "l", "fields": [{"name": "next", "type": ["null", "l"]}]}"#;
        check(list, &[2, 2, 0], 1).unwrap();
        assert!(check(list, &[2; 1000], 1).unwrap_err().contains("levels"));
    }

    #[test]
    fn schemas_that_are_none_are_errors() {
        let deep = format!("{}\"int\"{}", "[".repeat(100), "]".repeat(100));
        for schema in [
            "",
            "3",
            "{}",
            "\"other\"",
            r#"{"type": "fixed", "name": "f", "size": -1}"#,
            &deep,
        ] {
            assert!(RowShape::parse(schema.as_bytes()).is_err(), "{schema}");
        }
    }

    /// Returns a schema of `records` nested records with two fields each. The first field defines
    /// the next inner record, the second field refers to that record by name.
    fn doubled(records: usize) -> String {
        let mut schema = "\"int\"".to_owned();
        let mut inner = "int".to_owned();
        for record in 0..records {
            schema = format!(
                r#"{{"type": "record", "name": "r{record}", "fields": [
                    {{"name": "a", "type": {schema}}}, {{"name": "b", "type": "{inner}"}}]}}"#
            );
            inner = format!("r{record}");
        }
        schema
    }

    #[test]
    fn named_types_count_wherever_they_are_named() {
        RowShape::parse(doubled(10).as_bytes()).unwrap();
        let error = RowShape::parse(doubled(30).as_bytes()).unwrap_err();
        assert!(error.contains("more than 1048576 types"), "{error}");
        // Each record refers to the previous one by name.
        let chain = |records: usize| {
            let fields = (0..records).map(|record| {
                let of = match record.checked_sub(1) {
                    None => "int".to_owned(),
                    Some(before) => format!("r{before}"),
                };
                format!(
                    r#"{{"name": "f{record}", "type": {{"type": "record", "name": "r{record}",
                        "fields": [{{"name": "a", "type": "{of}"}}]}}}}"#
                )
            });
            let fields = fields.collect::<Vec<_>>().join(",");
            format!(r#"{{"type": "record", "name": "row", "fields": [{fields}]}}"#)
        };
        RowShape::parse(chain(60).as_bytes()).unwrap();
        let error = RowShape::parse(chain(1000).as_bytes()).unwrap_err();
        assert!(error.contains("nested in more than 64 levels"), "{error}");
    }
}
