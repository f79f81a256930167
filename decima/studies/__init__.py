"""The paper's figures, remade: one module for each study, and what several of them share."""
