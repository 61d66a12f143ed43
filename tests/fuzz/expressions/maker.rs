//! A generator of random SQL expressions.

use super::syntax::{Expr, FIELDS, NAMES, TYPES, Type, Value};
use crate::draw::Draw;

/// Generator of random expressions. With one level, they read the columns of the stored table; with
/// two, also those that an inner query computes.
pub(super) struct Maker<'a> {
    pub(super) draw: &'a mut Draw,
    pub(super) levels: usize,
}

impl Maker<'_> {
    fn boxed(&mut self, of: Type, depth: u32) -> Box<Expr> {
        Box::new(self.expr(of, depth))
    }

    fn several(&mut self, of: Type, depth: u32) -> Vec<Expr> {
        let count = self.draw.whole(1, 3);
        (0..count).map(|_| self.expr(of, depth)).collect()
    }

    fn leaf(&mut self, of: Type) -> Expr {
        let texts = ["x", "ab", "Ab", ""];
        match of {
            Type::Int if self.draw.chance(30) => {
                Expr::Constant(Value::Int(self.draw.whole(0, 4) as i64 - 1))
            }
            Type::Text if self.draw.chance(30) => {
                Expr::Constant(Value::Text(self.draw.pick(&texts).to_owned()))
            }
            Type::Bool if self.draw.chance(20) => Expr::Constant(Value::Bool(self.draw.chance(50))),
            _ => {
                let level = self.draw.whole(0, self.levels as u64 - 1) as usize;
                let at = TYPES.iter().position(|t| *t == of).unwrap();
                Expr::Column(NAMES[level][at], 1 + level * TYPES.len() + at)
            }
        }
    }

    pub(super) fn expr(&mut self, of: Type, depth: u32) -> Expr {
        if depth == 0 || self.draw.chance(15) {
            return self.leaf(of);
        }
        let down = depth - 1;
        match self.draw.whole(0, 9) {
            0 => {
                let branches = (0..self.draw.whole(1, 2))
                    .map(|_| (self.expr(Type::Bool, down), self.expr(of, down)))
                    .collect();
                let other = self.draw.chance(50).then(|| self.boxed(of, down));
                Expr::Case(branches, other)
            }
            1 => Expr::Nullif(self.boxed(of, down), self.boxed(of, down)),
            2 => Expr::Coalesce(self.several(of, down)),
            3 => {
                let of_branch = self.draw.pick(&[Type::Int, Type::Text]);
                let branches = (0..self.draw.whole(1, 2))
                    .map(|_| (self.expr(of_branch, down), self.expr(of, down)))
                    .collect();
                Expr::CaseOf(self.boxed(of_branch, down), branches)
            }
            4 if of == Type::Struct => Expr::Element(
                self.boxed(Type::Structs, down),
                self.draw.whole(1, 3) as usize,
            ),
            4 | 5 if FIELDS.iter().any(|(_, t)| *t == of) => {
                let field = FIELDS.iter().position(|(_, t)| *t == of).unwrap();
                Expr::Field(self.boxed(Type::Struct, down), field)
            }
            _ => self.own(of, down),
        }
    }

    /// Returns an expression of an operator that only the type `of` has, with operands of at most
    /// `down` levels.
    fn own(&mut self, of: Type, down: u32) -> Expr {
        let pick = self.draw.whole(0, 6);
        match (of, pick) {
            (Type::Int, 0 | 1) => Expr::Plus(self.boxed(of, down), self.boxed(of, down)),
            (Type::Int, 2) => Expr::Minus(self.boxed(of, down), self.boxed(of, down)),
            (Type::Int, 3) => Expr::Characters(self.boxed(Type::Text, down)),
            (Type::Int, 4) => Expr::Length(self.boxed(Type::List, down)),
            (Type::Int, _) => {
                Expr::Element(self.boxed(Type::List, down), self.draw.whole(1, 4) as usize)
            }
            (Type::Text, 0..=3) => Expr::Join(self.boxed(of, down), self.boxed(of, down)),
            (Type::Text, _) => Expr::Upper(self.boxed(of, down)),
            (Type::Bool, 0) => Expr::And(self.boxed(of, down), self.boxed(of, down)),
            (Type::Bool, 1) => Expr::Or(self.boxed(of, down), self.boxed(of, down)),
            (Type::Bool, 2) => Expr::Not(self.boxed(of, down)),
            (Type::Bool, 3) => {
                let kind = self.draw.pick(&TYPES);
                Expr::IsNull(self.boxed(kind, down))
            }
            (Type::Bool, pick) => {
                let kind = self.draw.pick(&[Type::Int, Type::Text]);
                let (a, b) = (self.boxed(kind, down), self.boxed(kind, down));
                match pick {
                    4 => Expr::Less(a, b),
                    5 if self.draw.chance(50) => Expr::Distinct(a, b),
                    5 => Expr::Equal(a, b),
                    _ => Expr::In(a, self.several(kind, down)),
                }
            }
            (Type::List, 0..=2) => Expr::Append(self.boxed(of, down), self.boxed(Type::Int, down)),
            (Type::List, 3 | 4) => Expr::Prepend(self.boxed(Type::Int, down), self.boxed(of, down)),
            (Type::List, _) => Expr::MakeList(self.several(Type::Int, down)),
            (Type::Struct, 0..=3) => {
                Expr::MakeStruct(FIELDS.iter().map(|(_, t)| self.expr(*t, down)).collect())
            }
            _ => self.leaf(of),
        }
    }
}
