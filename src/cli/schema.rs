//! `forebay schema`.

use arrow::datatypes::Schema;
use serde_json::{Value, json};

use super::args::SchemaArgs;
use super::failure::CommandFailure;
use super::session;
use super::{console, table};

/// Shows the columns of a source or pipeline.
pub(crate) async fn execute(args: SchemaArgs) -> Result<(), CommandFailure> {
    let session = session::open(&args.statements.machines)?;
    let made = session.load(&args.statements.text()?).await?;
    let names = match args.name.or(args.statements.pipeline) {
        Some(name) => vec![name],
        None => made,
    };
    if names.is_empty() {
        return Err(CommandFailure::Usage(
            "the statements define no pipeline: name a source, or add a query".to_owned(),
        ));
    }
    let mut all = serde_json::Map::new();
    for (i, name) in names.iter().enumerate() {
        let schema = session.describe(name).await?;
        if args.json {
            all.insert(name.clone(), to_json(&schema));
            continue;
        }
        if names.len() > 1 {
            console::data(&format!("{}{name}", if i > 0 { "\n" } else { "" }))?;
        }
        console::data(&to_text(&schema))?;
    }
    if args.json {
        console::json(&Value::Object(all))
    } else {
        Ok(())
    }
}

fn to_text(schema: &Schema) -> String {
    let width = |f: &arrow::datatypes::FieldRef| f.name().chars().count();
    let width = schema.fields().iter().map(width).max().unwrap_or_default();
    let line = |f: &arrow::datatypes::FieldRef| {
        let null = if f.is_nullable() { "" } else { " not null" };
        format!("{:width$}  {}{null}\n", f.name(), table::type_name(f))
    };
    schema.fields().iter().map(line).collect()
}

fn to_json(schema: &Schema) -> Value {
    let field = |f: &arrow::datatypes::FieldRef| {
        json!({
            "name": f.name(),
            "type": table::type_name(f),
            "arrow_type": f.data_type().to_string(),
            "nullable": f.is_nullable(),
            "metadata": f.metadata().iter().collect::<std::collections::BTreeMap<_, _>>(),
        })
    };
    schema.fields().iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn columns_are_aligned() {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("caption", DataType::Utf8, true),
        ]);
        assert_eq!(to_text(&schema), "id       Int64 not null\ncaption  Utf8\n");
        assert_eq!(to_json(&schema)[1]["nullable"], true);
    }
}
