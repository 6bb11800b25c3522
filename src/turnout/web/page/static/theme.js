// Sets the chosen theme before anything is drawn. A classic script, because modules run later.

const theme = localStorage.getItem("turnout-theme");
if (theme) document.documentElement.dataset.theme = theme;
