//! Saturation: the rules applied wherever they match, until nothing is left to rewrite.
//!
//! The loop is ours rather than egg's runner: a rule here is a function of two operators, whose verdict
//! is found once however often the two meet, and its limits are counts alone, so that every machine
//! finds the same plan.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use egg::Id;

use super::arena::{Arena, ParamId};
use super::facts::{PlanFact, cat_fact, op_fact};
use super::graph::{PlanGraph, param_of, plan_fact};
use super::lang::Node;
use super::proof::matched;
use super::rules::{Rule, Site, Verdict, concat, in_place};
use super::slots::SlotSet;

/// Where a search ends that does not end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Iterations at most. A plan of `n` operators needs about `n + 1`.
    pub iterations: usize,
    /// Nodes at most.
    pub nodes: usize,
    /// Columns of all classes together at most: what is known of a plan of many columns takes memory and time
    /// for each of them.
    pub columns: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            iterations: 60,
            nodes: 20_000,
            columns: 2_000_000,
        }
    }
}

/// How saturation went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saturation {
    /// Nodes in the end.
    pub nodes: usize,
    /// Classes in the end.
    pub classes: usize,
    /// Columns of all classes together, merged ones included.
    pub columns: usize,
    /// Iterations.
    pub iterations: usize,
    /// Whether nothing was left to rewrite.
    pub saturated: bool,
    /// How often each rule made two plans equal that were not known to be.
    pub fired: BTreeMap<&'static str, usize>,
    /// Where each rule's shape matched and a condition refused.
    pub refused: BTreeMap<&'static str, BTreeMap<Site, &'static str>>,
    /// The same for operators over a union.
    pub refused_over_union: BTreeMap<ParamId, &'static str>,
}

/// A place where two operators stand, or an operator and a union.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Match {
    /// An operator over an operator over `input`.
    Pair { class: Id, site: Site, input: Id },
    /// An operator over a union.
    OverCat {
        class: Id,
        param: ParamId,
        inputs: [Id; 2],
    },
    /// A union of one operator over each of `inputs`.
    CatOf {
        class: Id,
        param: ParamId,
        inputs: [Id; 2],
    },
}

impl Match {
    /// The class whose plan is rewritten.
    pub(super) fn class(self) -> Id {
        match self {
            Self::Pair { class, .. } | Self::OverCat { class, .. } | Self::CatOf { class, .. } => {
                class
            }
        }
    }
}

/// Applies the rules until nothing changes or a limit is met.
pub fn saturate(
    graph: &mut PlanGraph,
    rules: &[Rule],
    disabled: impl Fn(&str) -> bool,
    limits: Limits,
) -> Saturation {
    let mut search = Search {
        graph,
        rules,
        distribute: !disabled(concat::DISTRIBUTE),
        share: !disabled(concat::SHARE),
        verdicts: HashMap::new(),
        report: Saturation::default(),
    };
    search.run(limits);
    search.report
}

struct Search<'a> {
    graph: &'a mut PlanGraph,
    rules: &'a [Rule],
    distribute: bool,
    share: bool,
    /// What the rules say of two operators.
    verdicts: HashMap<Site, Arc<Vec<(&'static str, Verdict)>>>,
    report: Saturation,
}

impl Search<'_> {
    fn run(&mut self, limits: Limits) {
        let mut seen: HashSet<Match> = HashSet::new();
        let mut sizes: HashMap<Id, usize> = HashMap::new();
        // Whether every class is looked at, or those that have changed.
        let mut all = true;
        self.graph.rebuild();
        while self.report.iterations < limits.iterations && self.graph.analysis.poisoned.is_none() {
            self.report.iterations += 1;
            let grown = self.graph.classes().filter_map(|class| {
                (sizes.get(&class.id) != Some(&class.nodes.len())).then_some(class.id)
            });
            let grown: HashSet<Id> = grown.collect();
            let mut found = self.matches(|id| all || grown.contains(&id));
            found.retain(|&found| seen.insert(found));
            let terms: Vec<Id> = found.iter().map(|&m| matched(self.graph, m)).collect();
            sizes = self
                .graph
                .classes()
                .map(|c| (c.id, c.nodes.len()))
                .collect();
            let mut changed = false;
            for (found, term) in found.into_iter().zip(terms) {
                changed |= self.apply(found, term);
                if self.is_full(limits) {
                    break;
                }
            }
            self.graph.rebuild();
            if self.is_full(limits) {
                break;
            }
            // A class may have changed without growing, so the last look is at all of them.
            if !changed && all {
                self.report.saturated = true;
                break;
            }
            all = !changed;
        }
        self.report.nodes = self.graph.total_number_of_nodes();
        self.report.columns = self.graph.analysis.columns;
        self.report.classes = self.graph.number_of_classes();
    }

    fn is_full(&self, limits: Limits) -> bool {
        self.graph.total_size() > limits.nodes || self.graph.analysis.columns > limits.columns
    }

    /// The matches in which a class takes part for which `fresh` holds.
    fn matches(&self, fresh: impl Fn(Id) -> bool) -> Vec<Match> {
        let graph = &*self.graph;
        let mut found = Vec::new();
        for class in graph.classes() {
            for node in &class.nodes {
                match node {
                    Node::Op([p, _, x]) => {
                        if !fresh(class.id) && !fresh(graph.find(*x)) {
                            continue;
                        }
                        let Some(outer) = param_of(graph, *p) else {
                            continue;
                        };
                        for below in &graph[*x].nodes {
                            match below {
                                Node::Op([q, _, input]) => {
                                    let Some(inner) = param_of(graph, *q) else {
                                        continue;
                                    };
                                    found.push(Match::Pair {
                                        class: class.id,
                                        site: self.site(outer, inner, *input),
                                        input: graph.find(*input),
                                    });
                                }
                                Node::Cat(inputs) if self.distribute => {
                                    found.push(Match::OverCat {
                                        class: class.id,
                                        param: outer,
                                        inputs: inputs.map(|id| graph.find(id)),
                                    });
                                }
                                _ => {}
                            }
                        }
                    }
                    Node::Cat([a, b]) if self.share => {
                        let fresh = [class.id, graph.find(*a), graph.find(*b)]
                            .into_iter()
                            .any(&fresh);
                        if fresh {
                            self.shared_operators(class.id, *a, *b, &mut found);
                        }
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Two operators over a class, with what rules may ask of it.
    fn site(&self, outer: ParamId, inner: ParamId, input: Id) -> Site {
        let arena = &self.graph.analysis.arena;
        let below = in_place(arena.spec(outer), arena.spec(inner)).and_then(|slot| {
            let fact = plan_fact(self.graph, input)?;
            Some(fact.columns.get(slot)?.data_type)
        });
        Site {
            below,
            ..Site::of(outer, inner)
        }
    }

    /// The operators that stand over both inputs of a union.
    fn shared_operators(&self, class: Id, a: Id, b: Id, found: &mut Vec<Match>) {
        let graph = &*self.graph;
        for left in &graph[a].nodes {
            let Node::Op([p, _, x]) = left else { continue };
            for right in &graph[b].nodes {
                let Node::Op([q, _, y]) = right else {
                    continue;
                };
                let params = (param_of(graph, *p), param_of(graph, *q));
                if let (Some(param), true) = (params.0, params.0 == params.1) {
                    let inputs = [graph.find(*x), graph.find(*y)];
                    found.push(Match::CatOf {
                        class,
                        param,
                        inputs,
                    });
                }
            }
        }
    }

    fn verdicts(&mut self, site: Site) -> Arc<Vec<(&'static str, Verdict)>> {
        if let Some(known) = self.verdicts.get(&site) {
            return Arc::clone(known);
        }
        let arena = &mut self.graph.analysis.arena;
        let mut found = Vec::new();
        for rule in self.rules {
            match (rule.apply)(arena, site) {
                Some(Err(why)) => {
                    let refused = self.report.refused.entry(rule.name).or_default();
                    refused.insert(Site::of(site.outer, site.inner), why);
                }
                Some(verdict) => found.push((rule.name, verdict)),
                None => {}
            }
        }
        let found = Arc::new(found);
        self.verdicts.insert(site, Arc::clone(&found));
        found
    }

    /// Applies what applies to the matched term; whether a class grew.
    fn apply(&mut self, found: Match, term: Id) -> bool {
        match found {
            Match::Pair { class, site, input } => {
                let mut changed = false;
                for (rule, verdict) in self.verdicts(site).iter() {
                    let Ok(ops) = verdict else { continue };
                    match self.stack(class, input, ops) {
                        Ok(id) => changed |= self.unite(term, id, rule),
                        Err(why) => {
                            let refused = self.report.refused.entry(rule).or_default();
                            refused.insert(Site::of(site.outer, site.inner), why);
                        }
                    }
                }
                changed
            }
            Match::OverCat {
                class,
                param,
                inputs,
            } => match self.distributed(class, param, inputs) {
                Ok(id) => self.unite(term, id, concat::DISTRIBUTE),
                Err(why) => {
                    self.report.refused_over_union.insert(param, why);
                    false
                }
            },
            Match::CatOf {
                class,
                param,
                inputs,
            } => match self.shared(class, param, inputs) {
                Ok(id) => self.unite(term, id, concat::SHARE),
                Err(_) => false,
            },
        }
    }

    /// Operators over `input`, the lowest first, which give what `class` gives.
    fn stack(&mut self, class: Id, input: Id, ops: &[ParamId]) -> Result<Id, &'static str> {
        let (Some(whole), Some(below)) = (
            plan_fact(self.graph, class).map(Arc::clone),
            plan_fact(self.graph, input).map(Arc::clone),
        ) else {
            return Err("it is no plan");
        };
        let mut keeps = vec![whole.slots()];
        for &op in ops.iter().rev() {
            let wanted = &keeps[keeps.len() - 1];
            keeps.push(self.graph.analysis.arena.needed(op, wanted));
        }
        // What is left over below is dropped by the lowest operator.
        keeps.pop();
        keeps.reverse();
        // The plan is typed before it is built: a class must never be poisoned.
        let mut fact = below;
        let mut at = Some(input);
        for (&op, keep) in ops.iter().zip(&keeps) {
            at = at.and_then(|input| self.known(op, keep, input));
            fact = match at.and_then(|id| plan_fact(self.graph, id)) {
                Some(known) => Arc::clone(known),
                None => {
                    let arena = &mut self.graph.analysis.arena;
                    let typed = op_fact(arena, op, keep, &fact);
                    Arc::new(typed.map_err(|_| "what it needs is not there")?)
                }
            };
        }
        if !fact.agrees(&whole) {
            return Err(OTHER_TYPES);
        }
        let mut id = input;
        for (&op, keep) in ops.iter().zip(keeps) {
            id = self.over(op, keep, id);
        }
        Ok(id)
    }

    /// The class of an operator over a class, where the graph has it.
    fn known(&mut self, op: ParamId, keep: &SlotSet, input: Id) -> Option<Id> {
        let keep = self.graph.analysis.arena.keep(keep.clone());
        let keep = self.graph.lookup(Node::Keep(keep))?;
        let param = self.graph.lookup(Node::Param(op))?;
        self.graph.lookup(Node::Op([param, keep, input]))
    }

    fn over(&mut self, op: ParamId, keep: SlotSet, input: Id) -> Id {
        let keep = self.graph.analysis.arena.keep(keep);
        let keep = self.graph.add(Node::Keep(keep));
        let param = self.graph.add(Node::Param(op));
        self.graph.add_uncanonical(Node::Op([param, keep, input]))
    }

    /// The operator over each input of a union, where that is the same as over the union.
    fn distributed(
        &mut self,
        class: Id,
        param: ParamId,
        inputs: [Id; 2],
    ) -> Result<Id, &'static str> {
        concat::past_union(self.graph.analysis.arena.spec(param))?;
        let [whole, a, b] = facts_of(self.graph, [class, inputs[0], inputs[1]])?;
        let kept = whole.slots();
        let arena = &mut self.graph.analysis.arena;
        let typed = op_fact(arena, param, &kept, &a)
            .and_then(|a| Ok((a, op_fact(arena, param, &kept, &b)?)))
            .and_then(|(a, b)| cat_fact(arena, &a, &b));
        if !typed.is_ok_and(|fact| fact.agrees(&whole)) {
            return Err(OTHER_TYPES);
        }
        let inputs = inputs.map(|input| self.over(param, kept.clone(), input));
        Ok(self.graph.add_uncanonical(Node::Cat(inputs)))
    }

    /// The operator over a union, where that is the same as over each of its inputs.
    fn shared(&mut self, class: Id, param: ParamId, inputs: [Id; 2]) -> Result<Id, &'static str> {
        concat::past_union(self.graph.analysis.arena.spec(param))?;
        let [whole, a, b] = facts_of(self.graph, [class, inputs[0], inputs[1]])?;
        let kept = whole.slots();
        let arena = &mut self.graph.analysis.arena;
        let typed = cat_fact(arena, &a, &b).and_then(|cat| op_fact(arena, param, &kept, &cat));
        if !typed.is_ok_and(|fact| fact.agrees(&whole)) {
            return Err(OTHER_TYPES);
        }
        let cat = self.graph.add_uncanonical(Node::Cat(inputs));
        Ok(self.over(param, kept, cat))
    }

    fn unite(&mut self, term: Id, id: Id, rule: &'static str) -> bool {
        let changed = self.graph.find(term) != self.graph.find(id);
        if changed {
            *self.report.fired.entry(rule).or_default() += 1;
        }
        // Another way to what is known may make a proof shorter.
        if changed || self.graph.are_explanations_enabled() && term != id {
            self.graph.union_trusted(term, id, rule);
        }
        changed
    }
}

const OTHER_TYPES: &str = "the result would have other columns";

fn facts_of<const N: usize>(
    graph: &PlanGraph,
    classes: [Id; N],
) -> Result<[Arc<PlanFact>; N], &'static str> {
    let facts = classes.map(|class| plan_fact(graph, class).map(Arc::clone));
    if facts.iter().any(Option::is_none) {
        return Err("it is no plan");
    }
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    facts.try_into().map_err(|_| "it is no plan")
}

/// A site for people.
pub fn site_text(arena: &Arena, site: Site) -> (String, String) {
    let text = |param| arena.spec(param).text.clone();
    (text(site.outer), text(site.inner))
}
