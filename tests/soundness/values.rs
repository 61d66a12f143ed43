//! Random SQL expressions over numbers and strings. Some of the expressions raise an error for some
//! rows.

use crate::case::Type;
use crate::draw::Draw;

/// Generator of random SQL expressions over the columns `columns`.
pub(crate) struct Values<'a> {
    pub(crate) draw: &'a mut Draw,
    pub(crate) columns: &'a [(String, Type)],
}

impl Values<'_> {
    /// Returns the name of a random column of the type `wanted`; `None` if there is no such column.
    fn column(&mut self, wanted: Type) -> Option<String> {
        let names: Vec<&String> = self
            .columns
            .iter()
            .filter(|(_, t)| *t == wanted)
            .map(|(name, _)| name)
            .collect();
        (!names.is_empty()).then(|| self.draw.pick(&names).clone())
    }

    /// Returns a random integer expression of at most `depth` levels.
    pub(crate) fn whole(&mut self, depth: u64) -> String {
        if depth == 0 || self.draw.chance(20) {
            let literal = self.draw.whole(0, 5).to_string();
            return if self.draw.chance(80) {
                self.column(Type::Int).unwrap_or(literal)
            } else {
                literal
            };
        }
        let depth = depth - 1;
        match self.draw.whole(0, 13) {
            0 | 1 => format!("{} + {}", self.whole(0), self.whole(depth)),
            2 => format!("({}) * 2", self.whole(depth)),
            3 => format!("10 / ({})", self.whole(depth)),
            4 => format!("{} % ({})", self.whole(0), self.whole(depth)),
            5 => format!("CAST({} AS BIGINT)", self.text(depth)),
            6 => format!("TRY_CAST({} AS BIGINT)", self.text(depth)),
            7 => format!("length({})", self.text(depth)),
            8 => "random_int(0, 9)".to_owned(),
            9 => format!(
                "CASE WHEN {} THEN {} ELSE {} END",
                self.truth(depth),
                self.whole(depth),
                self.whole(depth)
            ),
            10 => format!("abs({} - 3)", self.whole(depth)),
            11 => match self.column(Type::List) {
                Some(list) => format!("coalesce({list}[{}], 4)", self.draw.whole(1, 2)),
                None => format!("coalesce({}, 4)", self.whole(depth)),
            },
            12 => match self.column(Type::Bytes) {
                Some(bytes) => {
                    let of = self
                        .draw
                        .pick(&["image_width", "image_height", "octet_length"]);
                    format!("{of}({bytes})")
                }
                None => format!("nullif({}, 2)", self.whole(depth)),
            },
            _ => format!("CAST(({}) AS BIGINT)", self.real(depth)),
        }
    }

    /// Returns a random floating-point expression of at most `depth` levels.
    pub(crate) fn real(&mut self, depth: u64) -> String {
        if depth == 0 || self.draw.chance(20) {
            return self.column(Type::Float).unwrap_or_else(|| "1.5".to_owned());
        }
        let depth = depth - 1;
        match self.draw.whole(0, 6) {
            0 => format!("{} + ({})", self.real(0), self.real(depth)),
            1 => format!("random_uniform(0.0, 4.0) + {}", self.real(0)),
            2 => format!("random_normal() * ({})", self.real(depth)),
            3 => format!("sqrt(abs({}))", self.real(depth)),
            4 => format!("coalesce({}, 0.5)", self.real(depth)),
            5 => format!("CAST({} AS DOUBLE)", self.text(depth)),
            _ => format!("({}) * 0.5", self.whole(depth)),
        }
    }

    /// Returns a random string expression of at most `depth` levels.
    pub(crate) fn text(&mut self, depth: u64) -> String {
        if depth == 0 || self.draw.chance(30) {
            return self.column(Type::Text).unwrap_or_else(|| "'7'".to_owned());
        }
        let depth = depth - 1;
        match self.draw.whole(0, 4) {
            0 => format!("upper({})", self.text(depth)),
            1 => format!("({} || '1')", self.text(depth)),
            2 => format!("substr({}, 2)", self.text(depth)),
            3 => format!("CAST(({}) AS VARCHAR)", self.whole(depth)),
            _ => format!("coalesce({}, '3')", self.text(depth)),
        }
    }

    /// Returns a random predicate whose operands have at most `depth` levels.
    pub(crate) fn truth(&mut self, depth: u64) -> String {
        let below = depth.saturating_sub(1);
        match self.draw.whole(0, if depth == 0 { 6 } else { 10 }) {
            0 | 1 => {
                let (compare, low, high) =
                    self.draw
                        .pick(&[("<", 4, 20), (">", 0, 3), ("<>", 0, 4), (">=", 0, 3)]);
                let bound = self.draw.whole(low, high);
                format!("{} {compare} {bound}", self.whole(depth))
            }
            2 => format!("({}) < {}", self.real(depth), self.draw.whole(3, 9)),
            3 => format!(
                "{} NOT LIKE '%{}%'",
                self.text(depth),
                self.draw.whole(1, 4)
            ),
            4 => format!("({}) IS NOT NULL", self.whole(depth)),
            5 => format!("random_bool(0.{})", self.draw.whole(5, 9)),
            6 => format!("{} BETWEEN 0 AND {}", self.whole(0), self.draw.whole(3, 20)),
            7 => format!("({} OR {})", self.truth(below), self.truth(below)),
            8 => format!("({} AND {})", self.truth(below), self.truth(below)),
            9 => format!("NOT ({})", self.truth(below)),
            _ => format!("random_uniform() < 0.{}", self.draw.whole(4, 9)),
        }
    }
}
