"""A comparison as one self-contained HTML page; what it shows is drawn by Plotly and by ``page.js``."""
