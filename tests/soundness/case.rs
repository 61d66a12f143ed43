//! A random pipeline as a list of parts. Parts can be left out one by one, to reduce a pipeline
//! that fails the test.

use std::fmt::Write;

use crate::draw::Draw;
use crate::images::{Pixels, decode, sized, step};
use crate::values::Values;

/// The type of a column, as far as the generator of pipelines distinguishes types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Int,
    Float,
    Text,
    List,
    Bytes,
    Pixels(Pixels),
    Vector,
}

/// Prefix of the names of columns that contain pixels or values computed from pixels.
pub(crate) const PIXELS: &str = "px";

/// A named expression: `base`, wrapped in the calls `steps` from first to last. `{}` in a call
/// stands for its argument.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    name: String,
    base: String,
    steps: Vec<String>,
}

impl Column {
    fn new(name: impl Into<String>, base: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            base: base.into(),
            steps: Vec::new(),
        }
    }

    fn sql(&self) -> String {
        let nest = |below: String, step: &String| step.replace("{}", &below);
        let expr = self.steps.iter().fold(self.base.clone(), nest);
        if expr == self.name {
            expr
        } else {
            format!("{expr} AS {}", self.name)
        }
    }
}

/// A selection `SELECT .. WHERE .. LIMIT ..` without its FROM clause.
#[derive(Debug, Clone, Default)]
pub(crate) struct Select {
    columns: Vec<Column>,
    filters: Vec<String>,
    limit: Option<String>,
}

impl Select {
    fn sql(&self, from: &str) -> String {
        let columns: Vec<_> = self.columns.iter().map(Column::sql).collect();
        let mut sql = format!("SELECT {} FROM {from}", columns.join(", "));
        if !self.filters.is_empty() {
            let _ = write!(sql, " WHERE {}", self.filters.join(" AND "));
        }
        if let Some(limit) = &self.limit {
            let _ = write!(sql, " {limit}");
        }
        sql
    }

    /// Returns all selections that result from leaving out one part of this selection.
    fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut push = |change: &dyn Fn(&mut Self)| {
            let mut select = self.clone();
            change(&mut select);
            smaller.push(select);
        };
        for i in 0..self.filters.len() {
            push(&|s| drop(s.filters.remove(i)));
        }
        if self.limit.is_some() {
            push(&|s| s.limit = None);
        }
        for i in 0..self.columns.len() {
            if self.columns.len() > 1 {
                push(&|s| drop(s.columns.remove(i)));
            }
            for j in 0..self.columns[i].steps.len() {
                push(&|s| drop(s.columns[i].steps.remove(j)));
            }
        }
        smaller
    }
}

/// The lowest seed whose pipeline may call every function of the catalogue. The pipelines of lower
/// seeds call only the functions listed in `images.rs`, so that a new function does not change the
/// pipelines recorded as goldens.
pub(crate) const EXTENDED_SEEDS: u64 = 1 << 20;

/// A random pipeline.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// The inputs: one table without a selection, or several tables, each with a selection, for
    /// UNION ALL.
    source: Vec<(String, Select)>,
    join: Option<String>,
    inner: Select,
    outer: Option<Select>,
    clauses: Vec<String>,
    on_error: &'static str,
    /// Number of rows in a segment; `None` for the default.
    pub(crate) segment_rows: Option<u64>,
}

impl Case {
    /// Returns the query with its clauses.
    pub(crate) fn sql(&self) -> String {
        let mut from = match self.source.as_slice() {
            [(table, select)] if select.columns.is_empty() => format!("{table} AS s"),
            united => {
                let selects: Vec<_> = united.iter().map(|(t, s)| s.sql(t)).collect();
                format!("({}) AS s", selects.join(" UNION ALL "))
            }
        };
        if let Some(join) = &self.join {
            let _ = write!(from, " {join}");
        }
        let mut sql = self.inner.sql(&from);
        if let Some(outer) = &self.outer {
            sql = outer.sql(&format!("({sql}) AS q"));
        }
        for clause in &self.clauses {
            let _ = write!(sql, " {clause}");
        }
        let _ = write!(sql, " OPTIONS (on_error = '{}')", self.on_error);
        sql
    }

    /// Returns true if a batch may contain a row twice.
    pub(crate) fn repeats_rows(&self) -> bool {
        self.on_error == "replace" || self.clauses.iter().any(|c| c.ends_with("PAD REMAINDER"))
    }

    /// Returns true if batches cross the ends of epochs.
    pub(crate) fn is_continuous(&self) -> bool {
        self.clauses.iter().any(|c| c.ends_with("CONTINUOUS"))
    }

    /// Returns all pipelines that result from leaving out one part of this pipeline.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut push = |change: &dyn Fn(&mut Self)| {
            let mut case = self.clone();
            change(&mut case);
            smaller.push(case);
        };
        for i in 0..self.clauses.len() {
            push(&|c| drop(c.clauses.remove(i)));
        }
        if self.outer.is_some() {
            push(&|c| c.outer = None);
        }
        for select in self.outer.iter().flat_map(Select::smaller) {
            push(&|c| c.outer = Some(select.clone()));
        }
        for select in self.inner.smaller() {
            push(&|c| c.inner = select.clone());
        }
        if self.join.is_some() {
            push(&|c| c.join = None);
        }
        for i in 0..self.source.len() {
            if self.source.len() > 1 {
                push(&|c| drop(c.source.remove(i)));
            } else if !self.source[i].1.columns.is_empty() {
                push(&|c| c.source[i].1 = Select::default());
            }
            for filter in 0..self.source[i].1.filters.len() {
                push(&|c| drop(c.source[i].1.filters.remove(filter)));
            }
        }
        if self.segment_rows.is_some() {
            push(&|c| c.segment_rows = None);
        }
        smaller
    }

    /// Returns the random pipeline that `seed` determines.
    pub(crate) fn of(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        Generator {
            draw: &mut draw,
            names: 0,
            is_extended: seed >= EXTENDED_SEEDS,
        }
        .case()
    }
}

type Columns = Vec<(String, Type)>;

fn columns(of: &[(&str, Type)]) -> Columns {
    of.iter().map(|&(name, t)| (name.to_owned(), t)).collect()
}

struct Generator<'a> {
    draw: &'a mut Draw,
    names: u64,
    is_extended: bool,
}

impl Generator<'_> {
    fn case(mut self) -> Case {
        let images = self.draw.chance(55);
        let (source, mut known) = if images { self.photos() } else { self.rows() };
        let join = self.draw.chance(20).then(|| self.join(images, &mut known));
        let unnest = !images && self.draw.chance(45);
        let (inner, known) = self.select(known, unnest);
        let deeper = self.draw.chance(55);
        let (outer, known) = if deeper {
            let (outer, known) = self.select(known, false);
            (Some(outer), known)
        } else {
            (None, known)
        };
        let ragged = |(_, t): &(String, Type)| matches!(t, Type::Pixels(p) if p.size.is_none());
        let ragged = known.iter().any(ragged);
        let on_error = self.draw.pick(&["fail", "fail", "skip", "null", "replace"]);
        let clauses = self.clauses(ragged);
        let segment_rows = self.draw.chance(40).then(|| self.draw.whole(1, 9));
        Case {
            source,
            join,
            inner,
            outer,
            clauses,
            on_error,
            segment_rows,
        }
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn values<'a>(&'a mut self, columns: &'a [(String, Type)]) -> Values<'a> {
        Values {
            draw: self.draw,
            columns,
        }
    }

    fn photos(&mut self) -> (Vec<(String, Select)>, Columns) {
        let mut known = columns(&[
            ("image", Type::Bytes),
            ("path", Type::Text),
            ("class", Type::Text),
            ("label", Type::Int),
        ]);
        let whole = |table: &str| vec![(table.to_owned(), Select::default())];
        match self.draw.whole(0, 9) {
            0..4 => (whole("clean"), known),
            4..7 => (whole("photos"), known),
            7 => {
                known.push(("fold".to_owned(), Type::Int));
                (whole("seen"), known)
            }
            _ => {
                let (select, known) = self.united(&known, "image, path, label");
                let tables = ["clean", "photos"];
                (self.branches(&tables, &select, &known), known)
            }
        }
    }

    fn rows(&mut self) -> (Vec<(String, Select)>, Columns) {
        let plain = columns(&[
            ("id", Type::Int),
            ("d", Type::Int),
            ("x", Type::Float),
            ("name", Type::Text),
        ]);
        let list = ("list".to_owned(), Type::List);
        let whole = |table: &str| vec![(table.to_owned(), Select::default())];
        match self.draw.whole(0, 9) {
            0..5 => (whole("t"), [plain, vec![list]].concat()),
            5 => (whole("u"), plain),
            6 => {
                let twice = ("twice".to_owned(), Type::Int);
                (whole("kept"), [plain, vec![list, twice]].concat())
            }
            _ => {
                let (select, known) = self.united(&plain, "id, d, x, name");
                (self.branches(&["t", "u"], &select, &known), known)
            }
        }
    }

    /// Returns the selection that all inputs of a union have in common, and the columns of its
    /// result.
    fn united(&mut self, of: &[(String, Type)], names: &str) -> (Select, Columns) {
        let passed = of.iter().filter(|(n, _)| names.split(", ").any(|m| m == n));
        let mut known: Columns = passed.cloned().collect();
        let pass = |(name, _): &(String, Type)| Column::new(name, name);
        let mut select = Select {
            columns: known.iter().map(pass).collect(),
            ..Select::default()
        };
        if self.draw.chance(60) {
            let (column, kind) = self.computed(&known);
            known.push((column.name.clone(), kind));
            select.columns.push(column);
        }
        (select, known)
    }

    /// Returns the inputs of a union: `select` over each table, with possibly different filters.
    fn branches(
        &mut self,
        tables: &[&str],
        select: &Select,
        known: &Columns,
    ) -> Vec<(String, Select)> {
        let stored: Columns = known
            .iter()
            .filter(|(n, _)| !n.ends_with(|c: char| c.is_ascii_digit()))
            .cloned()
            .collect();
        let mut branches = Vec::new();
        for table in tables {
            let mut select = select.clone();
            if self.draw.chance(40) {
                select.filters.push(self.values(&stored).truth(1));
            }
            branches.push(((*table).to_owned(), select));
        }
        branches
    }

    fn join(&mut self, images: bool, known: &mut Columns) -> String {
        let left = if self.draw.chance(50) { "LEFT " } else { "" };
        let table = if self.draw.chance(30) {
            "(SELECT key, title, weight FROM names WHERE key < 3)"
        } else {
            "names"
        };
        let on = match (images, self.draw.chance(15)) {
            (true, _) => "s.label".to_owned(),
            (false, false) => "s.d".to_owned(),
            (false, true) => "10 / s.d".to_owned(),
        };
        known.extend(columns(&[("title", Type::Text), ("weight", Type::Text)]));
        format!("{left}JOIN {table} AS n ON {on} = n.key")
    }

    /// Returns a random computed column over the columns `known`, and its type.
    fn computed(&mut self, known: &[(String, Type)]) -> (Column, Type) {
        let bytes = known.iter().any(|(_, t)| *t == Type::Bytes);
        let pixels: Vec<_> = known
            .iter()
            .filter_map(|(name, t)| match t {
                Type::Pixels(p) => Some((name.clone(), *p)),
                _ => None,
            })
            .collect();
        if !pixels.is_empty() && self.draw.chance(65) {
            let (name, mut pixels) = self.draw.pick(&pixels);
            let mut column = Column::new(self.name(PIXELS), name);
            self.chain(&mut column, &mut pixels, 2);
            return (column, Type::Pixels(pixels));
        }
        if bytes && self.draw.chance(75) {
            let (call, mut pixels) = decode(self.draw, "image");
            let mut column = Column::new(self.name(PIXELS), call);
            self.chain(&mut column, &mut pixels, 4);
            return (column, Type::Pixels(pixels));
        }
        let name = self.name("c");
        let mut values = self.values(known);
        match values.draw.whole(0, 8) {
            0..4 => (Column::new(name, values.whole(2)), Type::Int),
            4..6 => (Column::new(name, values.real(2)), Type::Float),
            6 => (Column::new(name, values.text(2)), Type::Text),
            7 => {
                let (label, n) = (values.whole(1), values.draw.whole(3, 9));
                (
                    Column::new(name, format!("one_hot({label}, {n})")),
                    Type::Vector,
                )
            }
            _ => (
                Column::new(name, format!("({})", values.truth(2))),
                Type::Vector,
            ),
        }
    }

    /// Appends up to `most` image functions to a column of pixels. Most of the resulting columns
    /// have images of one size.
    fn chain(&mut self, column: &mut Column, pixels: &mut Pixels, most: u64) {
        for _ in 0..self.draw.whole(0, most) {
            if pixels.size.is_none() && !pixels.planes && self.draw.chance(25) {
                column.steps.push(sized(self.draw, pixels));
            }
            let step = step(self.draw, pixels, self.is_extended);
            // A flip is often followed by the same flip, since the optimiser has a rule for such
            // pairs.
            if matches!(step.as_str(), "hflip({})" | "vflip({})") && self.draw.chance(40) {
                column.steps.push(step.clone());
            }
            column.steps.push(step);
        }
        if pixels.size.is_none() && !pixels.planes && self.draw.chance(85) {
            column.steps.push(sized(self.draw, pixels));
        }
    }

    fn select(&mut self, mut known: Columns, unnest: bool) -> (Select, Columns) {
        let mut select = Select::default();
        let mut given: Columns = Vec::new();
        let passed = |name: &str, t: Type, draw: &mut Draw| match t {
            Type::Bytes => draw.chance(30),
            Type::Pixels(_) => draw.chance(60),
            _ => matches!(name, "label" | "id") || draw.chance(35),
        };
        for (name, t) in &known {
            if passed(name, *t, self.draw) {
                select.columns.push(Column::new(name, name));
                given.push((name.clone(), *t));
            }
        }
        let has_list = known.iter().any(|(n, _)| n == "list");
        let unnest = unnest && has_list;
        if unnest {
            select.columns.push(Column::new("item", "unnest(list)"));
            given.push(("item".to_owned(), Type::Int));
        }
        for _ in 0..self.draw.pick(&[1, 1, 2]) {
            let (column, t) = self.computed(&known);
            given.push((column.name.clone(), t));
            select.columns.push(column);
        }
        for _ in 0..self.draw.pick(&[0, 0, 0, 1, 1, 2]) {
            let filter = self.filter(&known);
            select.filters.push(filter);
        }
        let random = select.filters.iter().any(|f| f.contains("random"));
        if !unnest && !random && self.draw.chance(12) {
            let mut limit = format!("LIMIT {}", self.draw.whole(1, 20));
            if self.draw.chance(40) {
                let _ = write!(limit, " OFFSET {}", self.draw.whole(1, 5));
            }
            select.limit = Some(limit);
        }
        known.clear();
        (select, given)
    }

    fn filter(&mut self, known: &[(String, Type)]) -> String {
        let pixels: Vec<_> = known
            .iter()
            .filter(|(_, t)| matches!(t, Type::Pixels(_)))
            .collect();
        if !pixels.is_empty() && self.draw.chance(20) {
            return format!("{} IS NOT NULL", self.draw.pick(&pixels).0);
        }
        if known.iter().any(|(_, t)| *t == Type::Bytes) && self.draw.chance(35) {
            return match self.draw.whole(0, 4) {
                0 => format!("image_width(image) > {}", self.draw.whole(3, 12)),
                1 => format!("image_height(image) * 2 >= {}", self.draw.whole(6, 30)),
                2 => "octet_length(image) > 300".to_owned(),
                3 => "decode_image(image) IS NOT NULL".to_owned(),
                _ => "100 / (image_width(image) - 11) > 2".to_owned(),
            };
        }
        let depth = self.draw.whole(0, 2);
        self.values(known).truth(depth)
    }

    fn clauses(&mut self, ragged: bool) -> Vec<String> {
        let mut clauses = Vec::new();
        let draw = &mut *self.draw;
        if draw.chance(60) {
            clauses.push(if draw.chance(40) {
                "SHUFFLE GLOBALLY".to_owned()
            } else {
                format!("SHUFFLE WITHIN {} ROWS", draw.whole(1, 12))
            });
        }
        clauses.push(format!("SEED {}", draw.whole(0, 1 << 40)));
        if draw.chance(20) {
            clauses.push(format!("SKIP {}", draw.whole(1, 6)));
        }
        if draw.chance(30) {
            clauses.push(format!("TAKE {}", draw.whole(1, 14)));
        }
        let batch = if ragged { 4 } else { 80 };
        if draw.chance(batch) {
            let global = draw.pick(&["", "", " GLOBAL"]);
            let remainder = draw.pick(&["", " DROP REMAINDER", " PAD REMAINDER"]);
            clauses.push(format!("BATCH {}{global}{remainder}", draw.whole(1, 7)));
        }
        if draw.chance(40) {
            let continuous = if draw.chance(30) { " CONTINUOUS" } else { "" };
            clauses.push(format!("REPEAT 2{continuous}"));
        }
        clauses
    }
}
