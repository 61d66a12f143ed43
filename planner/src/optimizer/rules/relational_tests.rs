//! Tests of the rules over filters, functions of different columns, lookups, unnests, shuffles,
//! takes and unions: for each rule, a case that the rule rewrites, and cases that the rule refuses.

use datafusion::logical_expr::{Expr, col, lit};

use super::concat::past_union;
use super::{Site, Verdict, rules};
use crate::optimizer::arena::Arena;
use crate::optimizer::ids::ParamId;
use crate::optimizer::slots::{Slot, SlotSet};
use crate::optimizer::spec::OpKind;

/// Creates operators over the slots `id`, `name`, `list` and `other`.
struct Operators {
    arena: Arena,
    slots: [Slot; 4],
}

const ID: usize = 0;
const NAME: usize = 1;
const LIST: usize = 2;
const OTHER: usize = 3;

impl Operators {
    fn new() -> Self {
        let mut arena = Arena::default();
        let slots = ["id", "name", "list", "other"].map(|name| arena.slot(name));
        Self { arena, slots }
    }

    fn set(&self, slots: &[usize]) -> SlotSet {
        slots.iter().map(|&slot| self.slots[slot]).collect()
    }

    /// A function that writes the slot with the index `slot` in `slots`.
    fn row(&mut self, slot: usize, expr: Expr) -> ParamId {
        self.arena.row(self.slots[slot], expr, false)
    }

    fn fallible_row(&mut self, slot: usize, expr: Expr) -> ParamId {
        self.arena.row(self.slots[slot], expr, true)
    }

    fn filter(&mut self, predicate: Expr) -> ParamId {
        self.arena.filter(predicate, false)
    }

    fn fallible_filter(&mut self, predicate: Expr) -> ParamId {
        self.arena.filter(predicate, true)
    }

    /// A lookup by `id` that adds the slot `other`.
    fn lookup(&mut self, fallible: bool) -> ParamId {
        let kind = OpKind::Lookup {
            build: 0,
            on: vec![(col("id"), col("key"))],
            columns: vec![("other".to_owned(), self.slots[OTHER])],
            keep_unmatched: false,
        };
        let (reads, writes) = (self.set(&[ID]), self.set(&[OTHER]));
        let text = "lookup".to_owned();
        self.arena.lookup(kind, text, reads, writes, fallible)
    }

    /// An unnest of `list` into `other`.
    fn flatten(&mut self) -> ParamId {
        let kind = OpKind::Flatten {
            lists: vec![(self.slots[LIST], self.slots[OTHER])],
            preserve_nulls: true,
        };
        let (reads, writes) = (self.set(&[LIST]), self.set(&[LIST, OTHER]));
        self.arena.plain(kind, "unnest".to_owned(), reads, writes)
    }

    fn plain(&mut self, kind: OpKind, text: &str) -> ParamId {
        let none = SlotSet::default;
        self.arena.plain(kind, text.to_owned(), none(), none())
    }

    fn shuffle(&mut self) -> ParamId {
        self.plain(OpKind::Shuffle { global: false }, "shuffle")
    }

    fn limit(&mut self) -> ParamId {
        let kind = OpKind::Limit {
            skip: 1,
            fetch: Some(5),
        };
        self.plain(kind, "limit")
    }

    fn batch(&mut self) -> ParamId {
        let kind = OpKind::Batch {
            rows: 4,
            drop_remainder: false,
        };
        self.plain(kind, "batch 4")
    }

    fn verdict(&mut self, rule: &str, outer: ParamId, inner: ParamId) -> Option<Verdict> {
        let rule = rules().into_iter().find(|r| r.name == rule).unwrap();
        (rule.apply)(&mut self.arena, Site::of(outer, inner))
    }

    #[track_caller]
    fn swaps(&mut self, rule: &str, outer: ParamId, inner: ParamId) {
        let verdict = self.verdict(rule, outer, inner);
        assert_eq!(verdict, Some(Ok(vec![outer, inner])), "{rule}");
    }

    #[track_caller]
    fn refuses(&mut self, rule: &str, outer: ParamId, inner: ParamId, why: &'static str) {
        let verdict = self.verdict(rule, outer, inner);
        assert_eq!(verdict, Some(Err(why)), "{rule}");
    }

    #[track_caller]
    fn is_no_match(&mut self, rule: &str, outer: ParamId, inner: ParamId) {
        assert_eq!(self.verdict(rule, outer, inner), None, "{rule}");
    }
}

const PINNED: &str = "one of them is pinned";
const READS: &str = "the upper one reads what the lower one writes";
const OVERWRITES: &str = "the upper one writes what the lower one reads";
const BOTH_FAIL: &str = "both may fail, and a row reports its first error";

#[test]
fn a_filter_passes_functions_whose_slots_it_does_not_read() {
    let mut ops = Operators::new();
    let filter = ops.filter(col("id").gt(lit(3)));
    let other = ops.row(NAME, col("name"));
    let read = ops.row(ID, col("id") + lit(1));
    ops.swaps("filter-below-row", filter, other);
    ops.refuses("filter-below-row", filter, read, READS);
    let pinned = ops.arena.pin(other);
    ops.refuses("filter-below-row", filter, pinned, PINNED);
}

#[test]
fn filters_pass_each_other_unless_both_may_fail() {
    let mut ops = Operators::new();
    let safe = ops.filter(col("id").gt(lit(3)));
    let [a, b] = [4, 5].map(|n| ops.fallible_filter(col("name").gt(lit(n))));
    ops.swaps("filter-swap", safe, a);
    ops.swaps("filter-swap", a, safe);
    ops.refuses("filter-swap", a, b, BOTH_FAIL);
}

#[test]
fn a_filter_passes_a_lookup_whose_columns_it_does_not_read() {
    let mut ops = Operators::new();
    let probe = ops.filter(col("name").gt(lit(3)));
    let build = ops.filter(col("other").gt(lit(3)));
    let fallible = ops.fallible_filter(col("name").lt(lit(3)));
    let (lookup, failing) = (ops.lookup(false), ops.lookup(true));
    ops.swaps("filter-below-lookup", probe, lookup);
    ops.swaps("filter-below-lookup", fallible, lookup);
    ops.refuses("filter-below-lookup", build, lookup, READS);
    ops.refuses("filter-below-lookup", fallible, failing, BOTH_FAIL);
    ops.is_no_match("filter-below-lookup", lookup, probe);
}

#[test]
fn a_filter_of_stored_columns_passes_an_unnest() {
    let mut ops = Operators::new();
    let stored = ops.filter(col("id").gt(lit(3)));
    let element = ops.filter(col("other").gt(lit(3)));
    let drawn = ops.filter(col(forebay_udfs::row::ROW_COLUMN).is_not_null());
    let unnest = ops.flatten();
    ops.swaps("filter-below-flatten", stored, unnest);
    ops.refuses("filter-below-flatten", element, unnest, READS);
    let why =
        "the filter is random: it draws for each element above the unnest, but for each row below";
    ops.refuses("filter-below-flatten", drawn, unnest, why);
}

#[test]
fn a_filter_never_passes_what_counts_rows() {
    let mut ops = Operators::new();
    let filter = ops.filter(col("id").gt(lit(3)));
    let (take, limit, batch) = (ops.arena.take(0, 5, false), ops.limit(), ops.batch());
    let shuffle = ops.shuffle();
    ops.refuses(
        "filter-past-take",
        filter,
        take,
        "TAKE would take other rows",
    );
    ops.refuses(
        "filter-past-take",
        filter,
        limit,
        "LIMIT would keep other rows",
    );
    ops.refuses(
        "filter-past-take",
        filter,
        batch,
        "batches would hold other rows",
    );
    ops.is_no_match("filter-past-take", filter, shuffle);
    ops.is_no_match("filter-past-take", take, filter);
}

#[test]
fn functions_of_different_slots_pass_each_other() {
    let mut ops = Operators::new();
    let (a, b) = (ops.row(ID, col("id") + lit(1)), ops.row(NAME, col("name")));
    let reader = ops.row(NAME, col("id"));
    let same = ops.row(ID, col("id") + lit(2));
    ops.swaps("row-swap", a, b);
    ops.refuses("row-swap", reader, a, READS);
    ops.refuses("row-swap", a, reader, OVERWRITES);
    ops.is_no_match("row-swap", same, a);
}

#[test]
fn a_function_passes_a_filter_that_does_not_read_its_slot() {
    let mut ops = Operators::new();
    let filter = ops.filter(col("id").gt(lit(3)));
    let (other, read) = (ops.row(NAME, col("name")), ops.row(ID, col("id") + lit(1)));
    ops.swaps("row-below-filter", other, filter);
    ops.refuses("row-below-filter", read, filter, OVERWRITES);
}

#[test]
fn functions_pass_a_lookup_either_way_unless_both_may_fail() {
    let mut ops = Operators::new();
    let (lookup, failing) = (ops.lookup(false), ops.lookup(true));
    let other = ops.row(NAME, col("name"));
    let fallible = ops.fallible_row(NAME, col("name") + lit(1));
    let of_build = ops.row(NAME, col("other"));
    let key = ops.row(ID, col("id") + lit(1));
    ops.swaps("row-past-lookup", other, lookup);
    ops.swaps("row-past-lookup", lookup, other);
    ops.swaps("row-past-lookup", fallible, lookup);
    ops.refuses("row-past-lookup", of_build, lookup, READS);
    ops.refuses("row-past-lookup", key, lookup, OVERWRITES);
    ops.refuses("row-past-lookup", lookup, key, READS);
    ops.refuses("row-past-lookup", fallible, failing, BOTH_FAIL);
}

#[test]
fn functions_pass_what_takes_rows_either_way() {
    let mut ops = Operators::new();
    let row = ops.row(NAME, col("name"));
    for taking in [ops.arena.take(1, 5, true), ops.limit()] {
        ops.swaps("row-past-take", row, taking);
        ops.swaps("row-past-take", taking, row);
        let pinned = ops.arena.pin(row);
        ops.refuses("row-past-take", pinned, taking, PINNED);
        ops.refuses("row-past-take", taking, pinned, PINNED);
    }
    let batch = ops.batch();
    ops.is_no_match("row-past-take", row, batch);
}

#[test]
fn a_shuffle_goes_below_what_is_not_pinned() {
    let mut ops = Operators::new();
    let shuffle = ops.shuffle();
    let (row, filter) = (ops.row(NAME, col("name")), ops.filter(col("id").gt(lit(3))));
    ops.swaps("shuffle-below-row", shuffle, row);
    ops.swaps("shuffle-below-filter", shuffle, filter);
    let (row, filter) = (ops.arena.pin(row), ops.arena.pin(filter));
    ops.refuses("shuffle-below-row", shuffle, row, PINNED);
    ops.refuses("shuffle-below-filter", shuffle, filter, PINNED);
}

/// Tests `past_union`, the condition of the rules `union-distribute` and `union-share`.
#[test]
fn operators_of_single_rows_pass_a_union() {
    let mut ops = Operators::new();
    let row = ops.row(NAME, col("name"));
    let filter = ops.filter(col("id").gt(lit(3)));
    let pinned = ops.arena.pin(row);
    let (shuffle, take, batch) = (ops.shuffle(), ops.arena.take(0, 5, false), ops.batch());
    let lookup = ops.lookup(false);
    let verdict = |param| past_union(ops.arena.spec(param));
    assert_eq!(verdict(row), Ok(()));
    assert_eq!(verdict(filter), Ok(()));
    assert_eq!(verdict(pinned), Err("it is pinned"));
    assert_eq!(
        verdict(take),
        Err("the rows of both inputs together are counted, not those of each input")
    );
    assert_eq!(
        verdict(shuffle),
        Err("the shuffle mixes the rows of both inputs")
    );
    assert_eq!(
        verdict(batch),
        Err("the rows of both inputs are batched together, not those of each input")
    );
    assert_eq!(
        verdict(lookup),
        Err("an unnest or a join is not split between the inputs of a union")
    );
}
